// Attention on a GPU, forward and backward, by each of the ways that the CUDA backend has, in TFLOP/s of the products
// that the mask leaves (two forward, five backward) and as a share of the rate of big bf16 matrix products on an H200.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/base/rng.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/memory.h"
#include "zeepo/kernels/cuda/attention_paths.h"

namespace zeepo {
namespace {

constexpr double kMatrixFlops = 800e12;

CudaStream& gpu() {
  static CudaStream stream;
  return stream;
}

using Event = std::unique_ptr<cudaEvent_t, Destroy<cudaEvent_t, cudaEventDestroy>>;
Event make_event() {
  cudaEvent_t event = nullptr;
  cuda_check(cudaEventCreate(&event));
  return Event(event);
}

struct Values {
  Values(Shape of, DType type) : shape(of), dtype(type), memory(device_memory(gpu(), "device", view().bytes())) {
    std::vector<std::byte> host(view().bytes());
    std::vector<float> numbers(4093);
    fill_normal({1}, 0, numbers);
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const float x = numbers[static_cast<std::size_t>(i % 4093)];
      if (dtype == DType::f32)
        reinterpret_cast<float*>(host.data())[i] = x;
      else
        reinterpret_cast<bf16*>(host.data())[i] = from_float<bf16>(x);
    }
    copy_to_device(gpu(), host.data(), memory.data(), host.size());
    gpu().synchronize();
  }
  View view() const { return {memory.data(), dtype, shape}; }

  Shape shape;
  DType dtype;
  MemoryRange memory;
};

// Arguments: the path (0 cuDNN, 1 matrix units, 2 plain), dtype, B, Tq, Tk, H, Hkv, D, percent of dropout.
void attend(benchmark::State& state, bool backward) {
  const auto path = static_cast<cuda::AttentionPath>(state.range(0));
  const auto dtype = static_cast<DType>(state.range(1));
  const std::int64_t batch = state.range(2), queries = state.range(3), keys = state.range(4), heads = state.range(5),
                     kv_heads = state.range(6), dim = state.range(7);
  const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<float>(dim)),
                                 .window = 0,
                                 .dropout = static_cast<float>(state.range(8)) * 0.01f,
                                 .key = {1}};
  const std::int64_t width = (heads + 2 * kv_heads) * dim;
  const Values qkv({batch, keys, width}, dtype), dqkv({batch, keys, width}, dtype);
  const Values out({batch, queries, heads * dim}, dtype), dout({batch, queries, heads * dim}, dtype);
  const Values sums({batch, heads, queries}, DType::f32);
  const auto q = [&](const Values& x) {
    auto part = heads_of(x.view(), 0, heads, dim);
    part.rows = queries;
    return part;
  };
  const auto k = [&](const Values& x) { return heads_of(x.view(), heads * dim, kv_heads, dim); };
  const auto v = [&](const Values& x) { return heads_of(x.view(), (heads + kv_heads) * dim, kv_heads, dim); };
  const auto y = heads_of(out.view(), 0, heads, dim), dy = heads_of(dout.view(), 0, heads, dim);
  const auto run = [&](bool back) {
    if (!back) return cuda::attention_by(path, gpu(), q(qkv), k(qkv), v(qkv), y, sums.view(), options);
    return cuda::attention_backward_by(
        path, gpu(), {q(qkv), k(qkv), v(qkv), y, dy, sums.view(), q(dqkv), k(dqkv), v(dqkv)}, options);
  };
  if (!run(false) || (backward && !run(true))) return state.SkipWithError("does not take it");
  for (int i = 0; i < 3; ++i) run(backward);
  const Event start = make_event(), stop = make_event();
  std::vector<double> times;
  for (auto _ : state) {
    cuda_check(cudaEventRecord(start.get(), gpu().handle()));
    run(backward);
    cuda_check(cudaEventRecord(stop.get(), gpu().handle()));
    gpu().synchronize();
    float ms = 0;
    cuda_check(cudaEventElapsedTime(&ms, start.get(), stop.get()));
    times.push_back(ms * 1e-3);
    state.SetIterationTime(times.back());
  }
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2), times.end());
  const double median = times[times.size() / 2];
  const double seen = static_cast<double>(batch * heads) *
                      (static_cast<double>(queries * keys) - 0.5 * static_cast<double>(queries * queries));
  const double flops = (backward ? 10.0 : 4.0) * seen * static_cast<double>(dim) / median;
  state.counters["median_us"] = median * 1e6;
  state.counters["TFLOP/s"] = flops * 1e-12;
  state.counters["of_800"] = flops / kMatrixFlops;
  const std::int64_t bytes = 2 * batch * keys * kv_heads * dim * static_cast<std::int64_t>(size_of(dtype));
  if (queries < keys) state.counters["kv_GB/s"] = static_cast<double>(bytes) / median * 1e-9;
}

void problems(benchmark::internal::Benchmark* bench, bool backward) {
  bench->ArgNames({"path", "dtype", "B", "Tq", "Tk", "H", "Hkv", "D", "drop"})->Unit(benchmark::kMicrosecond);
  bench->UseManualTime()->Iterations(30);
  for (const std::int64_t path : {0, 1}) {
    if (path == 0 && backward) continue;
    bench->Args({path, 1, 4, 2048, 2048, 16, 2, 128, 0});
    bench->Args({path, 1, 8, 1024, 1024, 12, 12, 64, 0});
    bench->Args({path, 1, 16, 2048, 2048, 14, 2, 64, 0});
    bench->Args({path, 1, 1, 8192, 8192, 16, 2, 128, 0});
    bench->Args({path, 1, 4, 8192, 8192, 16, 2, 128, 0});
    bench->Args({path, 1, 4, 4096, 4096, 32, 8, 128, 0});
    bench->Args({path, 1, 2, 2048, 2048, 8, 4, 256, 0});
  }
  bench->Args({1, 1, 8, 1024, 1024, 12, 12, 64, 10});
  bench->Args({1, 1, 4, 2048, 2048, 16, 2, 128, 10});
  bench->Args({2, 0, 8, 1024, 1024, 12, 12, 64, 0});
  bench->Args({2, 0, 4, 2048, 2048, 16, 2, 128, 0});
  if (backward) return;
  for (const std::int64_t path : {1, 2}) bench->Args({path, 1, 1, 1, 8192, 16, 2, 128, 0});
}
BENCHMARK_CAPTURE(attend, forward, false)->Apply([](auto* bench) { problems(bench, false); });
BENCHMARK_CAPTURE(attend, backward, true)->Apply([](auto* bench) { problems(bench, true); });

}  // namespace
}  // namespace zeepo

BENCHMARK_MAIN();
