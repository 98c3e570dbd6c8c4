// A Communicator whose collectives are a DeviceCommunicator's on GPU memory: the checks that every backend passes then
// hold for it too. Host memory goes up before a call and comes back after it.
#pragma once

#include "zeepo/comm/device_communicator.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {

class GpuMemory final : public Communicator {
 public:
  // Borrows all of them.
  GpuMemory(Communicator& ranks, DeviceCommunicator& device, CudaStream& compute)
      : ranks_(ranks), device_(device), compute_(compute) {}

  std::string_view name() const override { return "gpu memory"; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void agree(const Call& call) override { ranks_.agree(call); }
  void all_gather(CpuStream&, ConstView shard, View full, const Label& label) override {
    const Copy whole(compute_, full), own(compute_, shard, whole);
    follow(device_.all_gather(point_of(compute_), own.view, whole.view, label));
    whole.back(full);
  }
  void reduce_scatter(CpuStream&, ConstView full, View scratch, View shard, const Label& label,
                      const SumInto& how) override {
    const Copy whole(compute_, full), own(compute_, shard, whole), other(compute_, scratch);
    follow(device_.reduce_scatter(point_of(compute_), whole.view, other.view, own.view, label, how));
    own.back(shard);
  }
  void all_reduce(CpuStream&, View x, const Label& label) override {
    const Copy whole(compute_, x);
    follow(device_.all_reduce(point_of(compute_), whole.view, label));
    whole.back(x);
  }
  void broadcast(CpuStream&, View x, int root, const Label& label) override {
    const Copy whole(compute_, x);
    follow(device_.broadcast(point_of(compute_), whole.view, root, label));
    whole.back(x);
  }

 private:
  // What a host view holds, on the GPU. Where it is a part of another's, so is the copy.
  struct Copy {
    Copy(CudaStream& to, ConstView host) : stream(to), memory(device_memory(to, "device", host.bytes())) {
      view = {memory.data(), host.dtype, host.shape};
      first = host.as<std::byte>();
      if (host.bytes() > 0) copy_to_device(stream, host.data, view.data, host.bytes());
    }
    Copy(CudaStream& to, ConstView host, const Copy& around) : stream(to) {
      const auto* data = host.as<std::byte>();
      const bool within = data != nullptr && data >= around.first && data < around.first + around.memory.bytes();
      if (!within) memory = device_memory(to, "device", host.bytes());
      view = {within ? around.memory.data() + (data - around.first) : memory.data(), host.dtype, host.shape};
      if (host.bytes() > 0) copy_to_device(stream, host.data, view.data, host.bytes());
    }
    void back(View host) const {
      if (host.bytes() > 0) copy_to_host(stream, view.data, host.data, host.bytes());
      stream.synchronize();
    }
    CudaStream& stream;
    MemoryRange memory;
    View view;
    const std::byte* first = nullptr;
  };
  void follow(const Point& done) { start_after(compute_, done); }

  Communicator& ranks_;
  DeviceCommunicator& device_;
  CudaStream& compute_;
};

}  // namespace zeepo
