// Attention forward and backward, as a share of one big fp32 product by OpenBLAS with its own threads, taken in the
// same run: flops that the mask leaves over flops the peer would have done. Decoding is measured in bytes of keys and
// values.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "bench/openblas.h"
#include "zeepo/base/rng.h"
#include "zeepo/kernels/attention.h"

namespace zeepo {
namespace {

struct Problem {
  std::int64_t batch, queries, keys, heads, kv_heads, dim;
  DType dtype;
  std::int64_t width() const { return (heads + 2 * kv_heads) * dim; }

  explicit Problem(const benchmark::State& state)
      : batch(state.range(1)),
        queries(state.range(2)),
        keys(state.range(3)),
        heads(state.range(4)),
        kv_heads(state.range(5)),
        dim(state.range(6)),
        dtype(static_cast<DType>(state.range(0))) {}
  std::vector<std::byte> values(std::int64_t elements) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(elements) * size_of(dtype));
    for (std::int64_t i = 0; i < elements; ++i) {
      const float x = normal({1}, static_cast<std::uint64_t>(i % 4093));
      if (dtype == DType::f32)
        reinterpret_cast<float*>(bytes.data())[i] = x;
      else
        reinterpret_cast<bf16*>(bytes.data())[i] = from_float<bf16>(x);
    }
    return bytes;
  }
};

// Arguments: dtype, B, Tq, Tk, H, Hkv, D. Queries, keys and values lie in one fused row when Tq == Tk.
void attend(benchmark::State& state, bool backward) {
  const Problem p(state);
  const auto qkv = p.values(p.batch * p.keys * p.width()), dout = p.values(p.batch * p.queries * p.heads * p.dim);
  auto dqkv = qkv, out = dout;
  std::vector<float> log_sums(static_cast<std::size_t>(p.batch * p.heads * p.queries));
  const ConstView from{qkv.data(), p.dtype, {p.batch, p.keys, p.width()}};
  const View to{dqkv.data(), p.dtype, {p.batch, p.keys, p.width()}};
  const auto q_part = [&](auto view) {
    auto q = heads_of(view, 0, p.heads, p.dim);
    q.rows = p.queries;
    return q;
  };
  const auto k_part = [&](auto view) { return heads_of(view, p.heads * p.dim, p.kv_heads, p.dim); };
  const auto v_part = [&](auto view) { return heads_of(view, (p.heads + p.kv_heads) * p.dim, p.kv_heads, p.dim); };
  const auto y = heads_of(View{out.data(), p.dtype, {p.batch, p.queries, p.heads * p.dim}}, 0, p.heads, p.dim);
  const auto dy = heads_of(ConstView{dout.data(), p.dtype, {p.batch, p.queries, p.heads * p.dim}}, 0, p.heads, p.dim);
  const View sums{log_sums.data(), DType::f32, {p.batch, p.heads, p.queries}};
  const AttentionOptions options{.scale = 1 / std::sqrt(static_cast<float>(p.dim))};
  const double peer = peer_flops();
  CpuStream stream(pool());
  const auto forward = [&] { attention(stream, q_part(from), k_part(from), v_part(from), y, sums, options); };
  forward();
  double best = 1e9;
  for (auto _ : state) {
    best = std::min(best, seconds_of([&] {
                      if (!backward) return forward();
                      attention_backward(
                          stream,
                          {q_part(from), k_part(from), v_part(from), y, dy, sums, q_part(to), k_part(to), v_part(to)},
                          options);
                    }));
  }
  const double seen = static_cast<double>(p.batch * p.heads) *
                      (static_cast<double>(p.queries * p.keys) - 0.5 * static_cast<double>(p.queries * p.queries));
  const double flops = (backward ? 10.0 : 4.0) * seen * static_cast<double>(p.dim) / best;
  state.counters["best_ms"] = best * 1e3;
  state.counters["of_peer"] = flops / peer;
  const std::int64_t bytes = 2 * p.batch * p.keys * p.kv_heads * p.dim * static_cast<std::int64_t>(size_of(p.dtype));
  state.counters["kv_GB/s"] = static_cast<double>(bytes) / best * 1e-9;
}

void training(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dtype", "B", "Tq", "Tk", "H", "Hkv", "D"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const std::int64_t dtype : {0, 1}) {
    bench->Args({dtype, 4, 256, 256, 12, 12, 64});
    bench->Args({dtype, 1, 1024, 1024, 12, 12, 64});
    bench->Args({dtype, 1, 2048, 2048, 12, 12, 64});
    bench->Args({dtype, 1, 2048, 2048, 32, 8, 128});
  }
}
void decoding(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"dtype", "B", "Tq", "Tk", "H", "Hkv", "D"})->Unit(benchmark::kMillisecond)->UseRealTime();
  for (const std::int64_t dtype : {0, 1}) {
    bench->Args({dtype, 1, 1, 1024, 12, 12, 64});
    bench->Args({dtype, 1, 1, 8192, 32, 8, 128});
  }
}
BENCHMARK_CAPTURE(attend, forward, false)->Apply(training)->Apply(decoding);
BENCHMARK_CAPTURE(attend, backward, true)->Apply(training);

}  // namespace
}  // namespace zeepo

BENCHMARK_MAIN();
