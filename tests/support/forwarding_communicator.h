// A communicator that lets another one, which it borrows, do everything: what a test's own changes is overridden.
#pragma once

#include <string_view>
#include <vector>

#include "zeepo/comm/call.h"
#include "zeepo/comm/communicator.h"

namespace zeepo {

class ForwardingCommunicator : public Communicator {
 public:
  explicit ForwardingCommunicator(Communicator& inner) : inner_(inner) {}

  std::string_view name() const override { return inner_.name(); }
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::vector<int> nodes() const override { return inner_.nodes(); }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override {
    inner_.all_gather(stream, shard, full, label);
  }
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how) override {
    inner_.reduce_scatter(stream, full, scratch, shard, label, how);
  }
  void all_reduce(CpuStream& stream, View x, const Label& label) override { inner_.all_reduce(stream, x, label); }
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override {
    inner_.broadcast(stream, x, root, label);
  }
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    inner_.exchange(call, out, in);
  }
  void agree(const Call& call) override { inner_.agree(call); }

 private:
  Communicator& inner_;
};

}  // namespace zeepo
