#include "zeepo/comm/carrier.h"

#include "zeepo/base/error.h"
#include "zeepo/comm/launch.h"

namespace zeepo {

bool may_use_nccl(const Communicator& ranks, Carrier carrier) {
  return carrier == Carrier::nccl || (carrier == Carrier::automatic && ranks.size() > 1 && has_nccl());
}

std::unique_ptr<Communicator> make_carrier(Communicator& ranks, const GpuPlace& place, Carrier carrier,
                                           double timeout_seconds) {
  if (!may_use_nccl(ranks, carrier)) return nullptr;
  // NCCL takes ranks that share a GPU when each has an NCCL_HOSTID of its own.
  const int sharing = carrier == Carrier::nccl ? place.most_alike : place.most_ranks;
  if (sharing == 1) return make_nccl_communicator(ranks, place.gpu, timeout_seconds);
  if (carrier == Carrier::nccl)
    throw Error(
        "NCCL (--comm nccl): {} ranks share a GPU, and NCCL wants one for each; start fewer ranks, or use MPI "
        "(--comm mpi)",
        sharing);
  return nullptr;
}

}  // namespace zeepo
