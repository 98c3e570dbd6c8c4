#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/cuda/philox.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// A thread draws the numbers of kPack elements; when the memory is not aligned it still moves them one by one.
template <bool packed, class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, float p, float factor, RngKey key, std::int64_t n, T* y) {
  const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPack;
  if (i >= n) return;
  float drawn[2][4];
  uniform_block(key, static_cast<std::uint64_t>(i) / 4, drawn[0]);
  uniform_block(key, static_cast<std::uint64_t>(i) / 4 + 1, drawn[1]);
  const auto kept = [&](float value, int j) { return drawn[j / 4][j % 4] >= p ? value * factor : 0.0f; };
  if (packed && i + kPack <= n) {
    float v[kPack];
    load<kPack>(x + i, v);
#pragma unroll
    for (int j = 0; j < kPack; ++j) v[j] = kept(v[j], j);
    store<kPack>(v, y + i);
  } else {
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      if (i + j < n) y[i + j] = narrow<T>(kept(widen(x[i + j]), j));
  }
}

}  // namespace

void dropout(CudaStream& stream, ConstView x, float p, RngKey key, View y) {
  const std::int64_t n = y.elements();
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(pieces(n, kThreads * kPack));
  const float factor = 1.0f / (1.0f - p);
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (all_packable(x.data, static_cast<const void*>(y.data)))
      dropout_kernel<true, T><<<blocks, kThreads, 0, stream.handle()>>>(x.as<T>(), p, factor, key, n, y.as<T>());
    else
      dropout_kernel<false, T><<<blocks, kThreads, 0, stream.handle()>>>(x.as<T>(), p, factor, key, n, y.as<T>());
  });
  check_launch();
}

}  // namespace zeepo
