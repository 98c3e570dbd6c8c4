// A communicator whose link is slow: for measuring how much of it the compute hides, on a machine whose own is fast.
//
// Each collective takes at least what this rank sends in it divided by the rate, from the moment all ranks have come:
// waiting for a rank that still computes is not sending. The rest of the time is slept out. Borrows the other
// communicator, which does the work; a broadcast counts as nothing sent and is not slowed.
#pragma once

#include <functional>

#include "zeepo/base/pace.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

class ThrottledCommunicator final : public Communicator {
 public:
  // Throws Error unless the rate is more than 0.
  ThrottledCommunicator(Communicator& inner, double bytes_per_second);

  std::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  int local_rank() const override { return inner_.local_rank(); }
  int local_size() const override { return inner_.local_size(); }
  std::vector<int> nodes() const override { return inner_.nodes(); }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override;
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how = {}) override;
  void all_reduce(CpuStream& stream, View x, const Label& label) override;
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override;
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override;
  void agree(const Call& call) override { inner_.agree(call); }
  std::optional<std::string> failure() const override { return inner_.failure(); }
  void set_progress_timeout(double seconds) override { inner_.set_progress_timeout(seconds); }
  void finish() override { inner_.finish(); }
  [[noreturn]] void abort_job(const std::string& message) override;

 private:
  void take_time(CpuStream& stream, const Label& label, std::int64_t sent_bytes, const std::function<void()>& call);

  Communicator& inner_;
  Pace pace_;
};

}  // namespace zeepo
