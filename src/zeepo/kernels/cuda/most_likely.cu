#include "zeepo/kernels/most_likely.h"

#include "zeepo/kernels/cuda/early_launch.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256, kBlocks = 64;
constexpr unsigned long long kBroken = ~0ull;

// Larger for a larger value and, among equal values, for an earlier place.
__device__ __forceinline__ unsigned long long rank_of(float x, std::int64_t at) {
  if (isnan(x)) return kBroken;
  const unsigned bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // -0 is 0
  const unsigned order = bits >> 31 ? ~bits : bits | 0x80000000u;
  return static_cast<unsigned long long>(order) << 32 | (0xffffffffu - static_cast<unsigned>(at));
}

__device__ __forceinline__ unsigned long long largest_of_block(unsigned long long best) {
  __shared__ unsigned long long parts[kThreads / kWarp];
#pragma unroll
  for (int apart = kWarp / 2; apart > 0; apart /= 2) best = max(best, __shfl_xor_sync(~0u, best, apart));
  __syncthreads();
  if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = best;
  __syncthreads();
  best = 0;
#pragma unroll
  for (int w = 0; w < kThreads / kWarp; ++w) best = max(best, parts[w]);
  return best;
}

// A row's blocks leave the best of their parts; the one that comes last has the row's.
template <class T>
__global__ void __launch_bounds__(kThreads)
    most_likely_kernel(const T* logits, std::int64_t n, unsigned long long* best_of, unsigned* counters,
                       std::int32_t* ids) {
  __shared__ bool last;
  let_next_kernel_start();
  wait_for_kernel_before();
  const std::int64_t row = blockIdx.y;
  unsigned long long best = 0;
  for (std::int64_t i = blockIdx.x * kThreads + threadIdx.x; i < n; i += kBlocks * kThreads)
    best = max(best, rank_of(widen(logits[row * n + i]), i));
  best = largest_of_block(best);
  if (threadIdx.x == 0) {
    best_of[row * kBlocks + blockIdx.x] = best;
    __threadfence();
    last = atomicAdd(counters + row, 1) == kBlocks - 1;
  }
  __syncthreads();
  if (!last) return;
  __threadfence();
  best = largest_of_block(threadIdx.x < kBlocks ? __ldcg(best_of + row * kBlocks + threadIdx.x) : 0);
  if (threadIdx.x != 0) return;
  counters[row] = 0;
  const unsigned order = static_cast<unsigned>(best >> 32);
  const float value = __uint_as_float(order >> 31 ? order & 0x7fffffffu : ~order);
  ids[row] =
      best == kBroken || !isfinite(value) ? -1 : static_cast<std::int32_t>(0xffffffffu - static_cast<unsigned>(best));
}

}  // namespace

void most_likely(CudaStream& stream, ConstView logits, View ids) {
  const std::int64_t rows = ids.elements(), n = logits.shape[-1];
  if (rows == 0) return;
  if (rows > static_cast<std::int64_t>(CudaStream::kCounters))
    throw Error("most_likely: {} rows at once; the GPU's kernel takes at most {}", rows, CudaStream::kCounters);
  auto* const best = reinterpret_cast<unsigned long long*>(
      stream.workspace(static_cast<std::size_t>(rows) * kBlocks * sizeof(unsigned long long)));
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_early(stream, "most_likely", most_likely_kernel<T>, {dim3(kBlocks, static_cast<unsigned>(rows)), kThreads},
                 logits.as<T>(), n, best, stream.counters(), ids.as<std::int32_t>());
  });
}

}  // namespace zeepo
