// A communicator that tells of each gather and reduction before it is carried out by another, which it borrows.
#pragma once

#include <functional>
#include <string>

#include "tests/support/forwarding_communicator.h"

namespace zeepo {

class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  // "gather", "reduce" or "exchange", and what it is about. Called on the thread that sends.
  using Watch = std::function<void(const std::string& kind, const Label& label)>;
  WatchedCommunicator(Communicator& inner, Watch watch) : ForwardingCommunicator(inner), watch_(std::move(watch)) {}

  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override {
    watch_("gather", label);
    ForwardingCommunicator::all_gather(stream, shard, full, label);
  }
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how) override {
    watch_("reduce", label);
    ForwardingCommunicator::reduce_scatter(stream, full, scratch, shard, label, how);
  }
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    watch_("exchange", {call.what, call.header.id});
    ForwardingCommunicator::exchange(call, out, in);
  }

 private:
  Watch watch_;
};

}  // namespace zeepo
