#include "zeepo/comm/communicator.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

#include "zeepo/base/error.h"
#include "zeepo/base/partial_files.h"
#include "zeepo/base/say.h"
#include "zeepo/comm/call.h"

namespace zeepo {

void Communicator::exchange(const Call& call, std::span<const Outgoing>, std::span<const Incoming>) {
  throw Error("{}: ranks joined by {} send no messages of their own; use MPI", describe(call), name());
}

void Communicator::abort_job(const std::string& message) {
  say("zeepo: rank {}: {}\n", rank(), message);
  std::fflush(nullptr);
  remove_partial_files();
  std::_Exit(1);
}

}  // namespace zeepo
