// Which GPU a rank computes on, and its part of that GPU's memory where several ranks share it.
#pragma once

#include <cstddef>

#include "zeepo/comm/communicator.h"

namespace zeepo {

struct GpuPlace {
  int gpu = 0;                 // among those that this rank sees: its number on the machine, modulo how many there are
  int ranks = 1;               // that compute on it
  int most_ranks = 1;          // that compute on any GPU of the job
  int most_alike = 1;          // of these, with the same NCCL_HOSTID or none: those that NCCL does not take
  std::size_t free_bytes = 0;  // of the GPU, divided by the ranks on it
  std::size_t all_bytes = 0;   // of the GPU
};

// Every rank calls it, before any of them takes memory on its GPU. Throws Error when this one sees none.
GpuPlace find_gpu(Communicator& communicator);

}  // namespace zeepo
