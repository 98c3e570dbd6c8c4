// Ranks that need not be there: a plan for any of them, of any number, is made by a dry pass alone.
#pragma once

#include <memory>
#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/device_communicator.h"

namespace zeepo {

// What a plan depends on of a rank and its peers.
struct RankShape {
  int rank = 0, ranks = 1;
  int ranks_on_node = 1;
  std::vector<int> nodes = {};  // a number for each rank, as a communicator has them; none: ranks_on_node in a row each
  enum class Meet { in_host_memory, on_device } meet = Meet::in_host_memory;  // on_device: by NCCL

  // Whether collectives are left out: NCCL's are made by one rank too.
  bool alone() const { return ranks == 1 && meet == Meet::in_host_memory; }
  friend bool operator==(const RankShape&, const RankShape&) = default;
};
RankShape shape_of(Communicator& communicator);

// Answers which rank of how many it is. Throws Error when anything is to be sent: dry passes send nothing.
class AbsentRanks final : public Communicator {
 public:
  // Throws Error unless 0 <= rank < ranks.
  explicit AbsentRanks(const RankShape& shape);

  std::string_view name() const override { return "absent"; }
  int rank() const override { return shape_.rank; }
  int size() const override { return shape_.ranks; }
  bool alone() const override { return shape_.alone(); }
  int local_size() const override { return shape_.ranks_on_node; }
  std::vector<int> nodes() const override;
  DeviceCommunicator* on_device() override { return on_device_.get(); }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override;
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how) override;
  void all_reduce(CpuStream& stream, View x, const Label& label) override;
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override;

 private:
  RankShape shape_;
  std::unique_ptr<DeviceCommunicator> on_device_;
};

}  // namespace zeepo
