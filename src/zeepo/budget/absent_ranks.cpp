#include "zeepo/budget/absent_ranks.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

[[noreturn]] void refuse(const Label& label) {
  throw Error("plan: {}: the ranks of a plan are not there; nothing can be sent", label.what);
}

class AbsentDevice final : public DeviceCommunicator {
 public:
  Point all_gather(const Point&, ConstView, View, const Label& label) override { refuse(label); }
  Point reduce_scatter(const Point&, ConstView, View, View, const Label& label, const SumInto&) override {
    refuse(label);
  }
  Point all_reduce(const Point&, View, const Label& label) override { refuse(label); }
  Point broadcast(const Point&, View, int, const Label& label) override { refuse(label); }
};

}  // namespace

RankShape shape_of(Communicator& communicator) {
  return {.rank = communicator.rank(),
          .ranks = communicator.size(),
          .ranks_on_node = communicator.local_size(),
          .nodes = communicator.nodes(),
          .meet = communicator.on_device() ? RankShape::Meet::on_device : RankShape::Meet::in_host_memory};
}

AbsentRanks::AbsentRanks(const RankShape& shape) : shape_(shape) {
  if (shape.rank < 0 || shape.rank >= shape.ranks)
    throw Error("plan: rank {} of {}: must be from 0 to {}", shape.rank, shape.ranks, shape.ranks - 1);
  if (shape.meet == RankShape::Meet::on_device) on_device_ = std::make_unique<AbsentDevice>();
}

std::vector<int> AbsentRanks::nodes() const {
  std::vector<int> nodes = shape_.nodes;
  for (int rank = 0; static_cast<int>(nodes.size()) < shape_.ranks; ++rank)
    nodes.push_back(rank / std::max(1, shape_.ranks_on_node));
  return nodes;
}

void AbsentRanks::all_gather(CpuStream&, ConstView, View, const Label& label) { refuse(label); }
void AbsentRanks::reduce_scatter(CpuStream&, ConstView, View, View, const Label& label, const SumInto&) {
  refuse(label);
}
void AbsentRanks::all_reduce(CpuStream&, View, const Label& label) { refuse(label); }
void AbsentRanks::broadcast(CpuStream&, View, int, const Label& label) { refuse(label); }

}  // namespace zeepo
