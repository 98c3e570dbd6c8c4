#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"
#include "zeepo/comm/mpi/mpi_communicator.h"

namespace zeepo {

std::unique_ptr<Communicator> make_mpi_communicator(const Launch& launch) {
  auto communicator = std::make_unique<MpiCommunicator>();
  if (communicator->size() != launch.size || communicator->rank() != launch.rank)
    throw Error(
        "started as rank {} of {}, but MPI has this as rank {} of {}: use the mpirun of the MPI that zeepo was built "
        "with, or srun --mpi=pmix",
        launch.rank, launch.size, communicator->rank(), communicator->size());
  return communicator;
}

}  // namespace zeepo
