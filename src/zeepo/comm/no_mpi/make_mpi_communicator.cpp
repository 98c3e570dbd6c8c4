#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"

namespace zeepo {

std::unique_ptr<Communicator> make_mpi_communicator(const Launch& launch) {
  throw Error(
      "started as rank {} of {}, but this build has no MPI: install libopenmpi-dev and build again, or start one rank",
      launch.rank, launch.size);
}

}  // namespace zeepo
