#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"

namespace zeepo {

bool has_nccl() { return false; }

std::unique_ptr<Communicator> make_nccl_communicator(Communicator&, int, double) {
  throw Error("this build has no NCCL: build it where nccl.h is, or use --comm mpi");
}

}  // namespace zeepo
