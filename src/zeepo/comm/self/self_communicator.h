// A world of one rank: nothing is sent.
#pragma once

#include "zeepo/comm/communicator.h"

namespace zeepo {

class SelfCommunicator final : public Communicator {
 public:
  std::string_view name() const override { return "self"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override;
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how = {}) override;
  void all_reduce(CpuStream& stream, View x, const Label& label) override;
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override;
};

}  // namespace zeepo
