#include <algorithm>

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/gradient_norm.h"

namespace zeepo {
namespace {

using namespace cuda;

// The order of kernels/cpu/gradient_norm.cpp. A block of threads has a block of the norm; a warp sums a leaf: lane l
// has chains l and l + 32.
constexpr int kWarp = 32, kThreads = 256, kWarps = kThreads / kWarp, kLeavesAtOnce = 8;
constexpr int kTreeSize = 2 * kNormLeaves;  // all levels of the tree one after another

__device__ int level_begin(int level) { return kTreeSize - (kTreeSize >> level); }

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_squares_kernel(const T* x, std::int64_t n, std::int64_t begin, std::int64_t head, float* nodes) {
  __shared__ float tree[kTreeSize];
  const std::int64_t origin = (begin / kNormBlock + blockIdx.x) * kNormBlock - begin;  // of the block, in x
  const int low = static_cast<int>(max(std::int64_t{0}, -origin) / kNormLeaf);
  const int high = static_cast<int>((min(kNormBlock, n - origin) + kNormLeaf - 1) / kNormLeaf);
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  for (int first = warp * kLeavesAtOnce; first < kNormLeaves; first += kWarps * kLeavesAtOnce) {
    T at[kLeavesAtOnce][4];
#pragma unroll
    for (int leaf = 0; leaf < kLeavesAtOnce; ++leaf)
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const std::int64_t i = origin + (first + leaf) * kNormLeaf + k * kWarp + lane;
        at[leaf][k] = i >= 0 && i < n ? x[i] : narrow<T>(0);
      }
#pragma unroll
    for (int leaf = 0; leaf < kLeavesAtOnce; ++leaf) {
      double v[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) v[k] = widen(at[leaf][k]);
      double sum = __fma_rn(v[2], v[2], v[0] * v[0]) + __fma_rn(v[3], v[3], v[1] * v[1]);
#pragma unroll
      for (int half = kWarp / 2; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
      if (lane == 0) tree[first + leaf] = static_cast<float>(sum);
    }
  }
  for (int level = 1; level <= kNormLevels; ++level) {
    __syncthreads();
    const float* below = tree + level_begin(level - 1);
    for (int i = threadIdx.x; i < kNormLeaves >> level; i += kThreads)
      tree[level_begin(level) + i] = below[2 * i] + below[2 * i + 1];
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  float* out = nodes + (blockIdx.x == 0 ? 0 : head + blockIdx.x - 1);
  for (int leaf = low; leaf < high;) {
    const int aligned = leaf == 0 ? kNormLevels : __ffs(leaf) - 1, fitting = 31 - __clz(high - leaf);
    const int level = min(aligned, fitting);
    *out++ = tree[level_begin(level) + (leaf >> level)];
    leaf += 1 << level;
  }
}

__global__ void __launch_bounds__(kThreads)
    merge_kernel(const float* nodes, const std::int32_t* table, std::int64_t count, float* blocks) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (block >= count) return;
  const std::int32_t* entries = table + count + 1;
  float values[kNormLevels + 1];
  int levels[kNormLevels + 1], height = 0;
  for (std::int32_t i = table[block]; i < table[block + 1]; ++i) {
    float value = nodes[entries[2 * i]];
    int level = entries[2 * i + 1];
    for (; height > 0 && levels[height - 1] == level; ++level) value = values[--height] + value;
    values[height] = value;
    levels[height++] = level;
  }
  float sum = height > 0 ? values[--height] : 0;
  while (height > 0) sum = values[--height] + sum;
  blocks[block] = sum;
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

void sum_squares(CudaStream& stream, ConstView x, std::int64_t begin, View nodes) {
  const std::int64_t n = x.elements(), end = begin + n;
  if (n == 0) return;
  const std::int64_t first = begin / kNormBlock;
  const std::int64_t head = norm_nodes(begin, std::min(end, (first + 1) * kNormBlock) - begin);  // of the first block
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto blocks = static_cast<unsigned>(norm_blocks(end) - first);
    sum_squares_kernel<T><<<blocks, kThreads, 0, stream.handle()>>>(x.as<T>(), n, begin, head, nodes.as<float>());
  });
  check_launch();
}

void merge_norm_nodes(CudaStream& stream, ConstView nodes, ConstView table, View blocks) {
  const std::int64_t count = blocks.elements();
  if (count == 0) return;
  merge_kernel<<<static_cast<unsigned>(pieces(count, kThreads)), kThreads, 0, stream.handle()>>>(
      nodes.as<float>(), table.as<std::int32_t>(), count, blocks.as<float>());
  check_launch();
}

void finish_norm(CudaStream& stream, ConstView partials, float loss_scale, float clip, View control) {
  finish_norm_kernel<<<1, 1024, 0, stream.handle()>>>(partials.as<float>(), partials.elements(), loss_scale, clip,
                                                      control.as<StepControl>());
  check_launch();
}

}  // namespace zeepo
