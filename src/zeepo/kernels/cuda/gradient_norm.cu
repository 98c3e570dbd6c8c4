#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/optimizer.h"

namespace zeepo {
namespace {

using namespace cuda;

// The order of kernels/cpu/gradient_norm.cpp: 64 chains in fp64, chain j of elements j, j + 64, ..., then a tree. A
// thread has one chain, which is slow, and asks for kAhead of its elements at a time.
constexpr int kChains = 64, kThreads = 128, kAhead = 32, kBlocks = kThreads / kChains;

template <class T>
__global__ void __launch_bounds__(kThreads) sum_squares_kernel(const T* x, std::int64_t n, float* partials) {
  __shared__ double chains[kBlocks][kChains];
  const unsigned own = threadIdx.x / kChains, chain = threadIdx.x % kChains;
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kBlocks + own;
  const std::int64_t begin = block * kNormBlock, end = min(n, begin + kNormBlock);
  double sum = 0;
  const auto add = [&](T element) {
    const double v = widen(element);
    sum = __fma_rn(v, v, sum);
  };
  std::int64_t i = begin + chain;
  for (; i + (kAhead - 1) * kChains < end; i += kAhead * kChains) {
    T ahead[kAhead];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) ahead[k] = x[i + k * kChains];
#pragma unroll
    for (int k = 0; k < kAhead; ++k) add(ahead[k]);
  }
  for (; i < end; i += kChains) add(x[i]);
  chains[own][chain] = sum;
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
    const auto blocks = static_cast<unsigned>(pieces(norm_blocks(n), kBlocks));
    sum_squares_kernel<T><<<blocks, kThreads, 0, stream.handle()>>>(x.as<T>(), n, partials.as<float>());
  });
  check_launch();
}

void finish_norm(CudaStream& stream, ConstView partials, float loss_scale, float clip, View control) {
  finish_norm_kernel<<<1, 1024, 0, stream.handle()>>>(partials.as<float>(), partials.elements(), loss_scale, clip,
                                                      control.as<StepControl>());
  check_launch();
}

}  // namespace zeepo
