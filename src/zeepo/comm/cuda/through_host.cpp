#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/comm/call.h"
#include "zeepo/comm/device_communicator.h"
#include "zeepo/comm/rank_sum.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/cuda/point.h"

namespace zeepo {
namespace {

constexpr std::int64_t kAlignment = 64;  // of what lies side by side in the staging memory, in elements

// Elements [begin, end) of every rank's part.
struct Part {
  std::int64_t begin, end;
  std::int64_t elements() const { return end - begin; }
};

// Each part goes down, over and up before the next: one buffer, in order, so that nothing overlaps and nothing can
// collide. It is the way for ranks that share a GPU, not the fast one.
class CudaThroughHost final : public DeviceCommunicator {
 public:
  CudaThroughHost(const CudaStream& compute, Communicator& ranks, std::span<std::byte> staging)
      : ranks_(ranks), size_(ranks.size()), gpu_(compute.device()), staging_(staging) {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    copies_.reset(stream);
  }

  Point all_gather(const Point& start, ConstView shard, View full, const Label& label) override {
    all_gather_call(size_, shard, full, label);
    begin(start);
    const std::size_t element = size_of(full.dtype);
    for_parts(shard.elements(), element * static_cast<std::size_t>(size_), label, [&](const Part& part) {
      const View host{staging_.data(), full.dtype, {part.elements() * size_}};
      const View own = part_of(host, ranks_.rank(), size_);
      down(shard, part, own);
      ranks_.all_gather(host_, own, host, label);
      up(host, full, part);
    });
    return {};
  }

  Point reduce_scatter(const Point& start, ConstView full, View scratch, View shard, const Label& label,
                       const SumInto& how) override {
    reduce_scatter_call(size_, full, scratch, shard, label, how);
    begin(start);
    const std::size_t whole = size_of(full.dtype) * static_cast<std::size_t>(size_);
    for_parts(shard.elements(), 2 * whole + size_of(shard.dtype), label, [&](const Part& part) {
      const auto n = static_cast<std::size_t>(aligned(part.elements()));
      const View host{staging_.data(), full.dtype, {part.elements() * size_}};
      const View received{staging_.data() + n * whole, full.dtype, host.shape};
      const View sum{staging_.data() + 2 * n * whole, shard.dtype, {part.elements()}};
      down_of_all(full, part, host);
      if (how.onto) down(shard, part, sum);
      ranks_.reduce_scatter(host_, host, received, sum, label, how);
      up_to(shard, part, sum);
    });
    return {};
  }

  Point all_reduce(const Point& start, View x, const Label& label) override {
    all_reduce_call(x, label);
    begin(start);
    for_parts(x.elements(), size_of(x.dtype), label, [&](const Part& part) {
      const View host{staging_.data(), x.dtype, {part.elements()}};
      down(x, part, host);
      ranks_.all_reduce(host_, host, label);
      up_to(x, part, host);
    });
    return {};
  }

  Point broadcast(const Point& start, View x, int root, const Label& label) override {
    broadcast_call(size_, x, root, label);
    begin(start);
    for_parts(x.elements(), size_of(x.dtype), label, [&](const Part& part) {
      const View host{staging_.data(), x.dtype, {part.elements()}};
      if (ranks_.rank() == root) down(x, part, host);
      ranks_.broadcast(host_, host, root, label);
      if (ranks_.rank() != root) up_to(x, part, host);
    });
    return {};
  }

 private:
  static std::int64_t aligned(std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; }

  void begin(const Point& start) {
    cuda_check(cudaSetDevice(gpu_));  // of this thread
    start_after(copies_.get(), start);
  }

  // Calls f for all of the n elements, as many at a time as fit when each of them takes `bytes` of the staging memory.
  // Of none it is called once: every rank must know that it was.
  template <class F>
  void for_parts(std::int64_t n, std::size_t bytes, const Label& label, F&& f) {
    const auto fitting = static_cast<std::int64_t>(staging_.size() / bytes) / kAlignment * kAlignment;
    if (fitting == 0)
      throw Error("{}: {} bytes of host memory between the GPU and {} ranks: must be at least {}", label.what,
                  staging_.size(), size_, bytes * kAlignment);
    std::int64_t at = 0;
    do {
      const Part part{at, std::min(at + fitting, n)};
      f(part);
      at = part.end;
    } while (at < n);
  }

  template <class V>
  static auto* address(V x, std::int64_t element) {
    return x.template as<std::byte>() + static_cast<std::size_t>(element) * size_of(x.dtype);
  }
  void copy(const void* from, void* to, std::size_t bytes) {
    if (bytes > 0) cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies_.get()));
    finish();
  }
  // A row of each rank; the distance of one to the next may be more than their bytes, and more than a copy in two
  // dimensions takes.
  void copy_rows(const void* from, std::size_t from_pitch, void* to, std::size_t to_pitch, std::size_t bytes) {
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(size_) && bytes > 0; ++rank)
      cuda_check(cudaMemcpyAsync(static_cast<std::byte*>(to) + rank * to_pitch,
                                 static_cast<const std::byte*>(from) + rank * from_pitch, bytes, cudaMemcpyDefault,
                                 copies_.get()));
    finish();
  }
  void finish() { cuda_check(cudaStreamSynchronize(copies_.get())); }

  void down(ConstView device, const Part& part, View host) {
    copy(address(device, part.begin), host.data, host.bytes());
  }
  void up_to(View device, const Part& part, ConstView host) {
    copy(host.data, address(device, part.begin), host.bytes());
  }
  // The part of every rank's shard, one after another on the host.
  void down_of_all(ConstView device, const Part& part, View host) {
    const std::size_t ranks = static_cast<std::size_t>(size_), bytes = host.bytes() / ranks;
    copy_rows(address(device, part.begin), device.bytes() / ranks, host.data, bytes, bytes);
  }
  void up(ConstView host, View device, const Part& part) {
    const std::size_t ranks = static_cast<std::size_t>(size_), bytes = host.bytes() / ranks;
    copy_rows(host.data, bytes, address(device, part.begin), device.bytes() / ranks, bytes);
  }

  Communicator& ranks_;
  int size_, gpu_;
  std::span<std::byte> staging_;
  ThreadPool pool_{1};  // sums are taken on the caller's own thread
  CpuStream host_{pool_};
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> copies_;
};

}  // namespace

std::unique_ptr<DeviceCommunicator> through_host(CudaStream& compute, Communicator& ranks,
                                                 std::span<std::byte> staging) {
  return std::make_unique<CudaThroughHost>(compute, ranks, staging);
}

}  // namespace zeepo
