#include "zeepo/runtime/joined_ranks.h"

#include <cstdlib>

#include "zeepo/comm/launch.h"

namespace zeepo {

JoinedRanks::JoinedRanks() : own_(make_communicator(detect_launch())), ranks_(own_.get()) {}

GpuPlace JoinedRanks::choose_gpu(Carrier carrier, double timeout_seconds) {
  const GpuPlace place = find_gpu(*ranks_);
  nccl_ = make_carrier(*ranks_, place, carrier, timeout_seconds);
  return place;
}

void JoinedRanks::abort_job(const std::string& message) {
  ranks_->abort_job(message);
  std::abort();  // never reached: g++ does not see that a virtual function does not return
}

}  // namespace zeepo
