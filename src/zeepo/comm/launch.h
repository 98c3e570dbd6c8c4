// How this process was started: alone, by mpirun or by Slurm's srun. Read from the environment; MPI is not initialised.
#pragma once

#include <memory>

#include "zeepo/comm/communicator.h"

namespace zeepo {

struct Launch {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;  // on this machine; all ranks are taken to be here if the launcher does not say
  bool mpi = false;                    // a launcher has started it, even if as one rank only
};

// Throws Error for variables that contradict each other.
Launch detect_launch();

// One rank talks to itself, several over MPI. Throws Error when this build has no MPI, or MPI knows another number of
// ranks than the launcher. At most one communicator over MPI a process.
std::unique_ptr<Communicator> make_communicator(const Launch& launch);

// In mpi/ or no_mpi/, whichever CMake has picked.
std::unique_ptr<Communicator> make_mpi_communicator(const Launch& launch);

// In nccl/ or no_nccl/. The ranks' collectives on GPU memory by NCCL, between GPUs directly; borrows `ranks`, which
// brings them together and carries host memory. Every rank calls it, with a GPU of its own or, where they share one, an
// NCCL_HOSTID of its own. The timeout is set_progress_timeout's for what NCCL carries, its first contact included;
// `ranks` keeps the one it has. Throws Error when this build has no NCCL.
bool has_nccl();
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& ranks, int gpu, double timeout_seconds = 0);

}  // namespace zeepo
