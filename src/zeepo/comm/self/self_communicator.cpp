#include "zeepo/comm/self/self_communicator.h"

#include <cstring>

#include "zeepo/comm/call.h"
#include "zeepo/comm/rank_sum.h"

namespace zeepo {

void SelfCommunicator::all_gather(CpuStream&, ConstView shard, View full, const Label& label) {
  all_gather_call(1, shard, full, label);
  if (shard.data != full.data && full.bytes() > 0) std::memcpy(full.data, shard.data, full.bytes());
}

void SelfCommunicator::reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                                      const SumInto& how) {
  reduce_scatter_call(1, full, scratch, shard, label, how);
  if (shard.data != full.data) sum_in_rank_order(stream, {&full, 1}, shard, how);
}

void SelfCommunicator::all_reduce(CpuStream&, View x, const Label& label) { all_reduce_call(x, label); }

void SelfCommunicator::broadcast(CpuStream&, View x, int root, const Label& label) {
  broadcast_call(1, x, root, label);
}

}  // namespace zeepo
