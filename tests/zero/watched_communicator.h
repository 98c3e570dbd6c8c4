// A communicator that tells of each gather and reduction before it is carried out by another, which it borrows.
#pragma once

#include <functional>
#include <string>

#include "zeepo/comm/call.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

class WatchedCommunicator final : public Communicator {
 public:
  // "gather", "reduce" or "exchange", and what it is about. Called on the thread that sends.
  using Watch = std::function<void(const std::string& kind, const Label& label)>;
  WatchedCommunicator(Communicator& inner, Watch watch) : inner_(inner), watch_(std::move(watch)) {}

  std::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override {
    watch_("gather", label);
    inner_.all_gather(stream, shard, full, label);
  }
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how) override {
    watch_("reduce", label);
    inner_.reduce_scatter(stream, full, scratch, shard, label, how);
  }
  void all_reduce(CpuStream& stream, View x, const Label& label) override { inner_.all_reduce(stream, x, label); }
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override {
    inner_.broadcast(stream, x, root, label);
  }
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    watch_("exchange", {call.what, call.header.id});
    inner_.exchange(call, out, in);
  }

 private:
  Communicator& inner_;
  Watch watch_;
};

}  // namespace zeepo
