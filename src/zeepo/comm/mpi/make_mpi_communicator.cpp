#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"
#include "zeepo/comm/mpi/abort.h"
#include "zeepo/comm/mpi/mpi_check.h"
#include "zeepo/comm/mpi/mpi_communicator.h"

namespace zeepo {
namespace {

bool mpi_initialized() {
  int initialized = 0;
  mpi_check(MPI_Initialized(&initialized));
  return initialized != 0;
}

// A rank that has met the others and then cannot go on, for want of a thread say, ends the job: they would wait for it.
std::unique_ptr<MpiCommunicator> joined(const Launch& launch) {
  const bool before = mpi_initialized();
  try {
    return std::make_unique<MpiCommunicator>();
  } catch (const std::exception& error) {
    if (before || !mpi_initialized()) throw;
    abort_mpi(launch.rank, error.what(), Spread::several_hosts);  // for all it knows
  }
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(const Launch& launch) {
  auto communicator = joined(launch);
  if (communicator->size() != launch.size || communicator->rank() != launch.rank)
    throw Error(
        "started as rank {} of {}, but MPI has this as rank {} of {}: use the mpirun of the MPI that zeepo was built "
        "with, or srun --mpi=pmix",
        launch.rank, launch.size, communicator->rank(), communicator->size());
  return communicator;
}

}  // namespace zeepo
