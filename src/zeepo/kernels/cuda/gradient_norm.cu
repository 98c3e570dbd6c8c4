#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/optimizer.h"

namespace zeepo {
namespace {

using namespace cuda;

// The order of kernels/cpu/gradient_norm.cpp: 64 chains in fp64, chain j of elements j, j + 64, ..., then a tree. A
// thread has N neighbouring chains, 64/N threads a block of the norm: many threads, since a chain is slow.
constexpr int kChains = 64, kThreads = 128;

template <int N, class T>
__global__ void __launch_bounds__(kThreads) sum_squares_kernel(const T* x, std::int64_t n, float* partials) {
  constexpr int kThreadsEach = kChains / N, kBlocks = kThreads / kThreadsEach;
  constexpr int kAhead = 128 / (N * sizeof(T));  // 128 bytes a thread: there are few threads
  __shared__ double chains[kBlocks][kChains];
  const unsigned own = threadIdx.x / kThreadsEach, first = threadIdx.x % kThreadsEach * N;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kBlocks + own;
  const std::int64_t begin = block * kNormBlock, end = min(n, begin + kNormBlock);
  double sum[N] = {};
  std::int64_t i = begin + first;
  for (; i + (kAhead - 1) * kChains + N <= end; i += kAhead * kChains) {
    Pack<T, N> ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) ahead[k] = pack_at<N>(x + i + k * kChains);
#pragma unroll
    for (int k = 0; k < kAhead; ++k)
#pragma unroll
      for (int j = 0; j < N; ++j) {
        const double v = widen(ahead[k].at[j]);
        sum[j] = __fma_rn(v, v, sum[j]);
      }
  }
  for (; i < end; i += kChains)
    for (int j = 0; j < N; ++j)
      if (i + j < end) {
        const double v = widen(x[i + j]);
        sum[j] = __fma_rn(v, v, sum[j]);
      }
#pragma unroll
  for (int j = 0; j < N; ++j) chains[own][first + j] = sum[j];
  for (unsigned half = kChains / 2; half > 0; half /= 2) {
    __syncthreads();
    for (unsigned j = threadIdx.x; j < kBlocks * half; j += kThreads)
      chains[j / half][j % half] += chains[j / half][j % half + half];
  }
  __syncthreads();
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * kBlocks + threadIdx.x;
  if (threadIdx.x < kBlocks && mine * kNormBlock < n) partials[mine] = static_cast<float>(chains[threadIdx.x][0]);
}

// One thread adds in order; the others bring the numbers near.
__global__ void __launch_bounds__(1024)
    finish_norm_kernel(const float* partials, std::int64_t n, float loss_scale, float clip, StepControl* control) {
  __shared__ float near[1024];
  double sum = 0;
  for (std::int64_t begin = 0; begin < n; begin += 1024) {
    __syncthreads();
    if (begin + threadIdx.x < n) near[threadIdx.x] = partials[begin + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0)
      for (int i = 0; i < min(std::int64_t{1024}, n - begin); ++i) sum += double{near[i]};
  }
  if (threadIdx.x != 0) return;
  const double scale = loss_scale, norm = sqrt(sum) / scale;
  const double limit = clip > 0 ? min(1.0, double{clip} / (norm + 1e-6)) : 1.0;
  control->norm = static_cast<float>(norm);
  control->grad_factor = static_cast<float>(limit / scale);
  control->skip = isfinite(sum) ? 0.0f : 1.0f;
}

}  // namespace

void sum_squares(CudaStream& stream, ConstView x, View partials) {
  const std::int64_t n = x.elements();
  if (n == 0) return;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto chains_each) {
      const auto blocks = static_cast<unsigned>(pieces(norm_blocks(n), kThreads / (kChains / chains_each)));
      sum_squares_kernel<chains_each(), T>
          <<<blocks, kThreads, 0, stream.handle()>>>(x.as<T>(), n, partials.as<float>());
    };
    if (packable(x.data))
      launch(std::integral_constant<int, 2>());
    else
      launch(std::integral_constant<int, 1>());
  });
  check_launch();
}

void finish_norm(CudaStream& stream, ConstView partials, float loss_scale, float clip, View control) {
  finish_norm_kernel<<<1, 1024, 0, stream.handle()>>>(partials.as<float>(), partials.elements(), loss_scale, clip,
                                                      control.as<StepControl>());
  check_launch();
}

}  // namespace zeepo
