#include "zeepo/comm/threads/threads_communicator.h"

#include <algorithm>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/comm/call.h"
#include "zeepo/comm/rank_sum.h"

namespace zeepo {
namespace {

void copy(ConstView from, View to) {
  if (from.data != to.data && to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
}

}  // namespace

void ThreadsCommunicator::all_gather(CpuStream&, ConstView shard, View full, const Label& label) {
  const Call call = all_gather_call(size_, shard, full, label);
  world_.meet(rank_, call, shard, [&] {
    for (int rank = 0; rank < size_; ++rank) copy(world_.posted_view(rank), part_of(full, rank, size_));
  });
}

void ThreadsCommunicator::reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard,
                                         const Label& label, const SumInto& how) {
  const Call call = reduce_scatter_call(size_, full, scratch, shard, label, how);
  world_.meet(rank_, call, full, [&] {
    // Nobody else reads this rank's part of any `full`, so that the shard may be written there at once.
    std::vector<ConstView> parts;
    for (int rank = 0; rank < size_; ++rank) parts.push_back(part_of(world_.posted_view(rank), rank_, size_));
    sum_in_rank_order(stream, parts, shard, how);
  });
}

void ThreadsCommunicator::all_reduce(CpuStream& stream, View x, const Label& label) {
  const Call call = all_reduce_call(x, label);
  total_.resize(static_cast<std::size_t>(x.elements()));
  const View total{total_.data(), DType::f32, x.shape};
  world_.meet(rank_, call, x, [&] {
    std::vector<ConstView> parts;
    for (int rank = 0; rank < size_; ++rank) parts.push_back(world_.posted_view(rank));
    sum_in_rank_order(stream, parts, total);
  });
  copy(total, x);
}

void ThreadsCommunicator::broadcast(CpuStream&, View x, int root, const Label& label) {
  const Call call = broadcast_call(size_, x, root, label);
  world_.meet(rank_, call, x, [&] { copy(world_.posted_view(root), x); });
}

void ThreadsCommunicator::exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) {
  world_.meet(
      rank_, call, {},
      [&] {
        std::vector<std::size_t> taken(static_cast<std::size_t>(size_));  // of what each rank sends
        for (const Incoming& incoming : in) {
          const auto sent = world_.posted_messages(incoming.from);
          std::size_t& next = taken[static_cast<std::size_t>(incoming.from)];
          while (next < sent.size() && sent[next].to != rank_) ++next;
          if (next == sent.size() || sent[next].bytes.size() != incoming.bytes.size())
            throw Error("{}: rank {} sends rank {} {} bytes, where {} were to come", describe(call), incoming.from,
                        rank_, next == sent.size() ? 0 : sent[next].bytes.size(), incoming.bytes.size());
          std::ranges::copy(sent[next++].bytes, incoming.bytes.begin());
        }
      },
      out);
}

void ThreadsCommunicator::agree(const Call& call) {
  world_.meet(rank_, call, {}, [] {});
}

void ThreadsCommunicator::finish() {
  world_.meet(rank_, {}, {}, [] {});
}

}  // namespace zeepo
