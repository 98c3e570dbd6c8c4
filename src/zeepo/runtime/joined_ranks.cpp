#include "zeepo/runtime/joined_ranks.h"

#include <cstdlib>

#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"

namespace zeepo {

JoinedRanks::JoinedRanks() : own_(make_communicator(detect_launch())), ranks_(own_.get()) {}

GpuPlace JoinedRanks::choose_gpu(Carrier carrier, double timeout_seconds) {
  const GpuPlace place = find_gpu(*ranks_);
  if (carrier == Carrier::mpi || (carrier == Carrier::automatic && (ranks_->size() == 1 || !has_nccl()))) return place;
  // NCCL takes ranks that share a GPU where it has been told that they are on machines of their own.
  const int sharing = carrier == Carrier::nccl ? place.most_alike : place.most_ranks;
  if (sharing == 1)
    nccl_ = make_nccl_communicator(*ranks_, place.gpu, timeout_seconds);
  else if (carrier == Carrier::nccl)
    throw Error("NCCL: {} ranks share a GPU, and NCCL wants one for each; start fewer ranks, or let MPI carry",
                sharing);
  return place;
}

void JoinedRanks::abort_job(const std::string& message) {
  ranks_->abort_job(message);
  std::abort();  // never reached: g++ does not see that a virtual function does not return
}

}  // namespace zeepo
