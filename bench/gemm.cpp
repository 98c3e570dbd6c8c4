// Matrix products of GPT-2 small's training step, as a share of one big fp32 product by OpenBLAS with its own threads,
// taken in the same run. Products of few rows are measured against reading the weights: bytes per second.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <vector>

#include "bench/openblas.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

// Arguments: dtype, m, n, k, transpose a, transpose b, add.
void product(benchmark::State& state) {
  const auto dtype = static_cast<DType>(state.range(0));
  const std::int64_t m = state.range(1), n = state.range(2), k = state.range(3);
  const auto values = [&](std::int64_t elements) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size_of(dtype));
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i % 7 ? 0x3c : 0x11);
    return bytes;
  };
  const auto a = values(m * k), b = values(k * n);
  auto c = values(m * n);
  const MatmulOptions options{.a = static_cast<Transpose>(state.range(4)),
                              .b = static_cast<Transpose>(state.range(5)),
                              .write = static_cast<Write>(state.range(6))};
  const bool ta = options.a == Transpose::yes, tb = options.b == Transpose::yes;
  const ConstView a_view{a.data(), dtype, ta ? Shape{k, m} : Shape{m, k}};
  const ConstView b_view{b.data(), dtype, tb ? Shape{n, k} : Shape{k, n}};
  const View c_view{c.data(), dtype, {m, n}};
  const double peer = peer_flops();
  CpuStream stream(pool());
  matmul(stream, a_view, b_view, c_view, options);
  double best = 1e9;
  for (auto _ : state) {
    best = std::min(best, seconds_of([&] { matmul(stream, a_view, b_view, c_view, options); }));
  }
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / best;
  state.counters["best_GFLOP/s"] = flops * 1e-9;
  state.counters["of_peer"] = flops / peer;
  state.counters["best_GB/s"] = static_cast<double>(b_view.bytes()) / best * 1e-9;
}

void shapes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dtype", "m", "n", "k", "ta", "tb", "add"})->Unit(benchmark::kMillisecond)->UseRealTime();
  const std::int64_t layers[][2] = {{2304, 768}, {768, 768}, {3072, 768}, {768, 3072}};
  for (const std::int64_t dtype : {0, 1}) {
    for (const auto& [out, in] : layers) {
      bench->Args({dtype, 1024, out, in, 0, 1, 0});  // y = x Wᵀ
      bench->Args({dtype, 1024, in, out, 0, 0, 0});  // dx = dy W
      bench->Args({dtype, out, in, 1024, 1, 0, 0});  // dW = dyᵀ x
      bench->Args({dtype, out, in, 1024, 1, 0, 1});
    }
    bench->Args({dtype, 512, 50257, 768, 0, 1, 0});
    bench->Args({dtype, 512, 768, 50257, 0, 0, 0});
    bench->Args({dtype, 50257, 768, 512, 1, 0, 1});
    for (const std::int64_t m : {1, 4, 8}) {
      bench->Args({dtype, m, 3072, 768, 0, 1, 0});
      bench->Args({dtype, m, 50257, 768, 0, 1, 0});
    }
  }
}
BENCHMARK(product)->Apply(shapes);

}  // namespace
}  // namespace zeepo

BENCHMARK_MAIN();
