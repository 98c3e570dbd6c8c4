// y[i] = op(x[i], ...) over flat memory of any float types.
#pragma once

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda {

// A thread takes kMapPacks packs, a block's width apart, and asks for all of them before it uses the first.
inline constexpr int kMapThreads = 256, kMapPacks = 2;

template <int N>
struct MapPacks {
  float at[kMapPacks][N];
};

template <int N, class Op, class Y, class... X>
__global__ void __launch_bounds__(kMapThreads) map_kernel(Op op, std::int64_t n, Y* y, const X*... x) {
  constexpr std::int64_t kStride = std::int64_t{kMapThreads} * N;
  const std::int64_t first = blockIdx.x * kMapPacks * kStride + threadIdx.x * N;
  const auto loaded = [&](const auto* from) {
    MapPacks<N> in;
#pragma unroll
    for (int p = 0; p < kMapPacks; ++p)
      if (first + p * kStride + N <= n) load<N>(from + first + p * kStride, in.at[p]);
    return in;
  };
  const auto finish = [&](const auto&... in) {
#pragma unroll
    for (int p = 0; p < kMapPacks; ++p) {
      const std::int64_t i = first + p * kStride;
      if (i + N <= n) {
        float out[N];
#pragma unroll
        for (int j = 0; j < N; ++j) out[j] = op(in.at[p][j]...);
        store<N>(out, y + i);
      } else {
        for (std::int64_t j = i; j < n; ++j) y[j] = narrow<Y>(op(widen(x[j])...));
      }
    }
  };
  finish(loaded(x)...);
}

template <class Op, class Y, class... X>
void map(CudaStream& stream, Op op, std::int64_t n, Y* y, const X*... x) {
  if (n == 0) return;
  with_pack(all_packable(static_cast<const void*>(y), static_cast<const void*>(x)...), [&](auto pack) {
    const auto blocks = static_cast<unsigned>(pieces(n, std::int64_t{kMapThreads} * kMapPacks * pack));
    map_kernel<pack(), Op, Y, X...><<<blocks, kMapThreads, 0, stream.handle()>>>(op, n, y, x...);
    check_launch();
  });
}

}  // namespace zeepo::cuda
