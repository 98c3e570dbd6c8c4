#include "zeepo/comm/mpi/abort.h"

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "zeepo/base/partial_files.h"
#include "zeepo/base/say.h"
#include "zeepo/comm/mpi/waiting_launcher.h"

namespace zeepo {

void abort_mpi(int rank, const std::string& message, Spread spread) {
  say("zeepo: rank {}: {}\n", rank, message);
  std::fflush(nullptr);
  // Should MPI_Abort itself hang, the alarm ends this process and the launcher the others.
  std::signal(SIGALRM, SIG_DFL);
  alarm(10);
  remove_partial_files();  // this end runs no destructors
  if (spread == Spread::several_hosts) end_waiting_launcher();
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace zeepo
