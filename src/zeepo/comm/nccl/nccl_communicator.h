// Ranks on GPUs: GPU memory by NCCL, all else by the communicator that has started them, which is borrowed. A world of
// one rank sends to itself too: what runs there is what runs with many.
#pragma once

#include "zeepo/comm/communicator.h"
#include "zeepo/comm/nccl/nccl_device.h"

namespace zeepo {

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(Communicator& ranks, int gpu, double timeout_seconds)
      : ranks_(ranks), device_(ranks, gpu, timeout_seconds) {}

  std::string_view name() const override { return "nccl"; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int local_rank() const override { return ranks_.local_rank(); }
  int local_size() const override { return ranks_.local_size(); }
  std::vector<int> nodes() const override { return ranks_.nodes(); }
  DeviceCommunicator* on_device() override { return &device_; }
  bool alone() const override { return false; }
  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override {
    ranks_.all_gather(stream, shard, full, label);
  }
  void reduce_scatter(CpuStream& stream, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how = {}) override {
    ranks_.reduce_scatter(stream, full, scratch, shard, label, how);
  }
  void all_reduce(CpuStream& stream, View x, const Label& label) override { ranks_.all_reduce(stream, x, label); }
  void broadcast(CpuStream& stream, View x, int root, const Label& label) override {
    ranks_.broadcast(stream, x, root, label);
  }
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    ranks_.exchange(call, out, in);
  }
  void agree(const Call& call) override { ranks_.agree(call); }
  std::optional<std::string> failure() const override { return ranks_.failure(); }
  void set_progress_timeout(double seconds) override {
    ranks_.set_progress_timeout(seconds);
    device_.set_progress_timeout(seconds);
  }
  void finish() override {
    device_.close();
    ranks_.finish();
  }
  [[noreturn]] void abort_job(const std::string& message) override;

 private:
  Communicator& ranks_;
  NcclDevice device_;
};

}  // namespace zeepo
