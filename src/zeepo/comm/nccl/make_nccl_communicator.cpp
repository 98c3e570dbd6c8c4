#include <cstdlib>

#include "zeepo/comm/launch.h"
#include "zeepo/comm/nccl/nccl_communicator.h"

namespace zeepo {

bool has_nccl() { return true; }

std::unique_ptr<Communicator> make_nccl_communicator(Communicator& ranks, int gpu, double timeout_seconds) {
  return std::make_unique<NcclCommunicator>(ranks, gpu, timeout_seconds);
}

void NcclCommunicator::abort_job(const std::string& message) {
  ranks_.abort_job(message);
  std::abort();  // not reached; the compiler does not see that through a virtual call
}

}  // namespace zeepo
