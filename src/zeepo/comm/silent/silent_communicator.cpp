#include "zeepo/comm/silent/silent_communicator.h"

#include <cstdlib>
#include <cstring>

#include "zeepo/comm/rank_sum.h"

namespace zeepo {

void SilentCommunicator::all_gather(CpuStream&, ConstView shard, View full, const Label&) {
  if (full.bytes() == 0) return;
  for (int i = 0; i < size(); ++i)
    if (const View part = part_of(full, i, size()); part.data != shard.data)
      std::memcpy(part.data, shard.data, part.bytes());
}

void SilentCommunicator::reduce_scatter(CpuStream& stream, ConstView full, View, View shard, const Label&,
                                        const SumInto& how) {
  const ConstView part = part_of(full, rank(), size());
  if (shard.data != part.data) sum_in_rank_order(stream, {&part, 1}, shard, how);
}

void SilentCommunicator::abort_job(const std::string& message) {
  inner_.abort_job(message);
  std::abort();  // not reached
}

}  // namespace zeepo
