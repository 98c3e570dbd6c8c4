// What carries GPU memory between ranks.
#pragma once

#include <memory>

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/gpu_place.h"

namespace zeepo {

// automatic: NCCL where it is built in and every rank has a GPU of its own, else MPI through host memory.
enum class Carrier { automatic, mpi, nccl };

// Whether NCCL may be chosen at all: find_gpu() then says whether the ranks' GPUs allow it.
bool may_use_nccl(const Communicator& ranks, Carrier carrier);
// NCCL over `ranks`, or null where MPI carries. Throws Error where NCCL was asked for and ranks share a GPU. Every rank
// calls it.
std::unique_ptr<Communicator> make_carrier(Communicator& ranks, const GpuPlace& place, Carrier carrier,
                                           double timeout_seconds);

}  // namespace zeepo
