// Ranks that send each other nothing: for what a step takes without its links.
//
// Each collective does what a rank can do by itself, at once and without waiting for the others: a gathered whole is
// this rank's shard again and again, a sum has this rank's part alone. Sizes, memory and arithmetic are those of the
// real collectives; values are not. All ranks count as one node, whose messages need no routes. Which rank of how many
// this is, and the end of a job that failed, are the other communicator's, which is borrowed.
#pragma once

#include "zeepo/comm/communicator.h"

namespace zeepo {

class SilentCommunicator final : public Communicator {
 public:
  explicit SilentCommunicator(Communicator& inner) : inner_(inner) {}

  std::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override;
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how = {}) override;
  void all_reduce(CpuStream&, View, const Label&) override {}
  void broadcast(CpuStream&, View, int, const Label&) override {}
  std::optional<std::string> failure() const override { return inner_.failure(); }
  [[noreturn]] void abort_job(const std::string& message) override;

 private:
  Communicator& inner_;
};

}  // namespace zeepo
