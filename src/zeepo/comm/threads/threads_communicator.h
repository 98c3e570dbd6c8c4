// One rank of a ThreadsWorld, which owns it.
#pragma once

#include <vector>

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/threads/threads_world.h"

namespace zeepo {

class ThreadsCommunicator final : public Communicator {
 public:
  ThreadsCommunicator(ThreadsWorld& world, int rank, int size) : world_(world), rank_(rank), size_(size) {}

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override;
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how = {}) override;
  void all_reduce(CpuStream& stream, View x, const Label& label) override;
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override;
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override;
  void agree(const Call& call) override;
  void finish() override;

 private:
  ThreadsWorld& world_;
  int rank_, size_;
  std::vector<float> total_;  // of all_reduce, until all have read
};

}  // namespace zeepo
