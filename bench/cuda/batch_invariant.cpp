// What it costs on a GPU that a row's bits do not depend on other rows (BatchInvariant): the forward pass's
// products and attention of Qwen2.5-3B in bf16, for one token, a few and a training step, with and without in turns.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/rng.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/memory.h"
#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

using Event = std::unique_ptr<cudaEvent_t, Destroy<cudaEvent_t, cudaEventDestroy>>;
Event make_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event));
  return Event(event);
}

class Values {
 public:
  Values(CudaStream& stream, Shape shape) : shape_(shape), memory_(device_memory(stream, "device", view().bytes())) {
    std::vector<float> numbers(4093);
    fill_normal({1}, 0, numbers);
    std::vector<bf16> values(static_cast<std::size_t>(shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = from_float<bf16>(numbers[i % numbers.size()]);
    copy_to_device(stream, values.data(), memory_.data(), view().bytes());
    stream.synchronize();
  }
  View view() { return {memory_.data(), DType::bf16, shape_}; }

 private:
  Shape shape_;
  MemoryRange memory_;
};

double milliseconds(CudaStream& stream, const std::function<void()>& f, int calls) {
  const Event begin = make_event(), end = make_event();
  cuda_check(cudaEventRecord(begin.get(), stream.handle()));
  for (int i = 0; i < calls; ++i) f();
  cuda_check(cudaEventRecord(end.get(), stream.handle()));
  stream.synchronize();
  float time = 0;
  cuda_check(cudaEventElapsedTime(&time, begin.get(), end.get()));
  return time / static_cast<float>(calls);
}

void compare(CudaStream& stream, const std::string& name, const std::function<void()>& f) {
  constexpr int kRounds = 7, kCalls = 20;
  std::vector<double> times[2];
  for (int round = 0; round <= kRounds; ++round)  // the first one makes plans
    for (const int invariant : {0, 1}) {
      stream.set_batch_invariant(static_cast<BatchInvariant>(invariant));
      const double time = milliseconds(stream, f, round == 0 ? 1 : kCalls);
      if (round > 0) times[invariant].push_back(time);
    }
  for (auto& list : times) std::nth_element(list.begin(), list.begin() + kRounds / 2, list.end());
  const double fastest = times[0][kRounds / 2], invariant = times[1][kRounds / 2];
  fmt::print("{:44} {:9.4f} ms, batch invariant {:9.4f} ms: {:+.1f}%\n", name, fastest, invariant,
             100 * (invariant / fastest - 1));
}

void run() {
  CudaStream stream;
  struct Layer {
    const char* name;
    std::int64_t out, in;
  };
  constexpr Layer kLayers[] = {
      {"qkv", 2560, 2048}, {"output", 2048, 2048}, {"gate and up", 22016, 2048}, {"down", 2048, 11008}};
  for (const auto& [name, out, in] : kLayers) {
    Values weight(stream, {out, in});
    for (const std::int64_t rows : {1, 8, 64, 512, 4096, 8192, 16384}) {
      Values x(stream, {rows, in}), y(stream, {rows, out});
      compare(stream, fmt::format("{}: {} rows, {} x {}", name, rows, in, out),
              [&] { matmul(stream, x.view(), weight.view(), y.view(), {.b = Transpose::yes}); });
    }
  }
  constexpr std::int64_t kHeads = 16, kKvHeads = 2, kDim = 128, kTime = 4096;
  Values qkv(stream, {2, kTime, (kHeads + 2 * kKvHeads) * kDim}), out(stream, {2, kTime, kHeads * kDim});
  const MemoryRange log_sums = device_memory(stream, "device", 2 * kHeads * kTime * sizeof(float));
  for (const std::int64_t queries : {std::int64_t{1}, std::int64_t{64}, kTime}) {
    Heads q = heads_of(qkv.view(), 0, kHeads, kDim), to = heads_of(out.view(), 0, kHeads, kDim);
    q.rows = to.rows = queries;
    const View sums{log_sums.data(), DType::f32, {2, kHeads, queries}};
    compare(stream, fmt::format("attention: 2 x {} queries, {} keys", queries, kTime), [&] {
      attention(stream, q, heads_of(qkv.view(), kHeads * kDim, kKvHeads, kDim),
                heads_of(qkv.view(), (kHeads + kKvHeads) * kDim, kKvHeads, kDim), to, sums, {.scale = 0.088f});
    });
  }
}

}  // namespace
}  // namespace zeepo

int main() {
  try {
    zeepo::run();
  } catch (const zeepo::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
