#include "zeepo/kernels/decode_attention.h"

#include <algorithm>

#include "zeepo/kernels/cuda/attention_arguments.h"
#include "zeepo/kernels/cuda/early_launch.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo {
namespace {

using namespace cuda;

// 16 lanes have a key, 8 values each, and go through four keys at a time.
constexpr int kWarps = 8, kLanes = 16, kKeys = 4, kMostDim = kLanes * kPack;
constexpr int kRound = kWarps * 2 * kKeys;  // keys of a block at a time
constexpr int kMostSplits = 64;
constexpr int kRowEnd = 4;  // after a row of sums: its top and its total, and what aligns the next

struct Arguments {
  HeadsPointer q, k, v, keys, values, out;
  const float *cosines, *sines;
  int dim, group, parts;               // query heads of a key head, and pieces of them
  int length, first, keys_of_a_split;  // keys, the first that is seen
  float scale;
  float* partial;  // (batch, key heads, parts, splits, heads of a part, dim + kRowEnd)
  unsigned* counters;
};

// Eight values of a head from d on, rotated and rounded as rotate() does.
template <class T>
__device__ __forceinline__ void load_rotated(const T* head, int d, const Arguments& a, float (&x)[kPack]) {
  load<kPack>(head + d, x);
  if (!a.cosines) return;
  const int half = a.dim / 2;
  const bool lower = d < half;
  float other[kPack], c[kPack], s[kPack];
  load<kPack>(head + (lower ? d + half : d - half), other);
  load<kPack>(a.cosines + (lower ? d : d - half), c);
  load<kPack>(a.sines + (lower ? d : d - half), s);
#pragma unroll
  for (int j = 0; j < kPack; ++j) x[j] = widen(narrow<T>(__fmaf_rn(lower ? -other[j] : other[j], s[j], x[j] * c[j])));
}

__device__ __forceinline__ float sum_of_lanes(float x) {
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
  return x;
}

// How much a sum of weights relative to `top` counts beside others, relative to a larger one.
__device__ __forceinline__ float weight_of(float top, float larger) {
  return top == -INFINITY ? 0.0f : __expf(top - larger);
}

// What a warp has of some heads: the largest product, the sum of weights relative to it, the weighted sum of values.
template <int kGroup>
struct Seen {
  float top[kGroup], total[kGroup], sum[kGroup][kPack];

  __device__ Seen() {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      top[h] = -INFINITY, total[h] = 0;
#pragma unroll
      for (int j = 0; j < kPack; ++j) sum[h][j] = 0;
    }
  }
  // Both halves of the warp get what they have together.
  __device__ void join_halves() {
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const float other = __shfl_xor_sync(~0u, top[h], kLanes), larger = fmaxf(top[h], other);
      const float factor = weight_of(top[h], larger);
      top[h] = larger;
      total[h] *= factor;
      total[h] += __shfl_xor_sync(~0u, total[h], kLanes);
#pragma unroll
      for (int j = 0; j < kPack; ++j) {
        sum[h][j] *= factor;
        sum[h][j] += __shfl_xor_sync(~0u, sum[h][j], kLanes);
      }
    }
  }
};

// Keys and values of one round, as a lane holds them.
template <class T>
struct Round {
  Pack<T, kPack> key[kKeys], value[kKeys];

  // Those before `end`.
  __device__ __forceinline__ void load(const T* keys, const T* values, const Arguments& a, int first, int end) {
#pragma unroll
    for (int u = 0; u < kKeys; ++u)
      if (first + u < end) {
        key[u] = pack_at<kPack>(keys + (first + u) * a.keys.row_stride);
        value[u] = pack_at<kPack>(values + (first + u) * a.values.row_stride);
      } else {
        key[u] = value[u] = {};
      }
  }
};

// A block has some keys of a key head for some of its query heads. Keys of earlier positions, which no kernel of this
// pass writes, are asked for before the kernel before this one has ended.
template <class T, int kGroup>
__global__ void __launch_bounds__(kWarps* kWarp) decode_kernel(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(16) float shared[];  // (kWarps, kGroup, dim + kRowEnd), or (splits, kGroup)
  __shared__ bool last;
  const int split = blockIdx.x, b = blockIdx.z, kv = blockIdx.y / a.parts;
  const int in_group = blockIdx.y % a.parts * kGroup, heads = min(kGroup, a.group - in_group);
  const int first_head = kv * a.group + in_group;
  const int warp = threadIdx.x / kWarp, half = threadIdx.x % kWarp / kLanes, d = threadIdx.x % kLanes * kPack;
  const bool on = d < a.dim;
  const int newest = a.length - 1, begin = split * a.keys_of_a_split, end = min(begin + a.keys_of_a_split, a.length);
  T* const keys = head_of<T>(a.keys, b, kv, a.dim) + d;
  T* const values = head_of<T>(a.values, b, kv, a.dim) + d;

  let_next_kernel_start();
  Round<T> round;
  const int first = begin + (warp * 2 + half) * kKeys;
  round.load(keys, values, a, first, on ? min(end, newest) : 0);
  wait_for_kernel_before();

  float q[kGroup][kPack] = {};
#pragma unroll
  for (int h = 0; h < kGroup; ++h)
    if (on && h < heads) load_rotated(head_of<T>(a.q, b, first_head + h, a.dim), d, a, q[h]);

  Seen<kGroup> seen;
  for (int at = begin + warp * 2 * kKeys; at < end; at += kRound) {
    const int mine = at + half * kKeys;
    if (mine != first) round.load(keys, values, a, mine, on ? min(end, newest) : 0);
    if (on && newest >= mine && newest < mine + kKeys && newest < end) {
      float x[kPack];
      Pack<T, kPack> key, value = pack_at<kPack>(head_of<T>(a.v, b, kv, a.dim) + d);
      load_rotated(head_of<T>(a.k, b, kv, a.dim), d, a, x);
      narrow(x, key);
      *reinterpret_cast<Pack<T, kPack>*>(keys + newest * a.keys.row_stride) = key;
      *reinterpret_cast<Pack<T, kPack>*>(values + newest * a.values.row_stride) = value;
#pragma unroll
      for (int u = 0; u < kKeys; ++u)
        if (mine + u == newest) round.key[u] = key, round.value[u] = value;
    }
    float products[kGroup][kKeys];
#pragma unroll
    for (int u = 0; u < kKeys; ++u) {
      float x[kPack];
      widen(round.key[u], x);
      const bool sees = mine + u < end && mine + u >= a.first;
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
        float dot = 0;
#pragma unroll
        for (int j = 0; j < kPack; ++j) dot = __fmaf_rn(q[h][j], x[j], dot);
        dot = sum_of_lanes(dot);
        products[h][u] = sees ? dot * a.scale : -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float top = seen.top[h];
#pragma unroll
      for (int u = 0; u < kKeys; ++u) top = fmaxf(top, products[h][u]);
      const float factor = weight_of(seen.top[h], top);
      seen.top[h] = top;
      seen.total[h] *= factor;
#pragma unroll
      for (int j = 0; j < kPack; ++j) seen.sum[h][j] *= factor;
#pragma unroll
      for (int u = 0; u < kKeys; ++u) seen.total[h] += products[h][u] = weight_of(products[h][u], top);
    }
#pragma unroll
    for (int u = 0; u < kKeys; ++u) {
      float x[kPack];
      widen(round.value[u], x);
#pragma unroll
      for (int h = 0; h < kGroup; ++h)
#pragma unroll
        for (int j = 0; j < kPack; ++j) seen.sum[h][j] = __fmaf_rn(products[h][u], x[j], seen.sum[h][j]);
    }
  }

  seen.join_halves();
  const int row = a.dim + kRowEnd, all = kGroup * row;
  if (half == 0 && on)
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      float* const to = shared + (warp * kGroup + h) * row;
#pragma unroll
      for (int j = 0; j < kPack; ++j) to[d + j] = seen.sum[h][j];
      if (d == 0) to[a.dim] = seen.top[h], to[a.dim + 1] = seen.total[h];
    }
  __syncthreads();

  const unsigned place = b * gridDim.y + blockIdx.y;
  float* const partial = a.partial + static_cast<std::int64_t>(place) * gridDim.x * all;
  const auto write = [&](int h, int e, float x) { head_of<T>(a.out, b, first_head + h, a.dim)[e] = narrow<T>(x); };
  for (int i = threadIdx.x; i < heads * a.dim; i += kWarps * kWarp) {
    const int h = i / a.dim, e = i % a.dim;
    const auto at = [&](int w, int x) { return shared[(w * kGroup + h) * row + x]; };
    float top = -INFINITY, total = 0, sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, at(w, a.dim));
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      const float factor = weight_of(at(w, a.dim), top);
      total = __fmaf_rn(at(w, a.dim + 1), factor, total);
      sum = __fmaf_rn(at(w, e), factor, sum);
    }
    if (gridDim.x == 1) {
      write(h, e, sum / total);
      continue;
    }
    float* const to = partial + split * all + h * row;
    to[e] = sum;
    if (e == 0) to[a.dim] = top, to[a.dim + 1] = total;
  }
  if (gridDim.x == 1) return;

  // The block that comes last joins what all of them have left, in order.
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(a.counters + place, 1) == gridDim.x - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  if (threadIdx.x == 0) a.counters[place] = 0;
  const int splits = static_cast<int>(gridDim.x);
  // Each part's weight in its head's sum, and the heads' totals: a warp has a head at a time.
  float *const weights = shared, *const totals = shared + kMostSplits * kGroup;  // (kGroup, kMostSplits), (kGroup)
  for (int h = warp; h < heads; h += kWarps) {
    constexpr int kEach = kMostSplits / kWarp;
    float top[kEach], total = 0, largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int s = threadIdx.x % kWarp + i * kWarp;
      top[i] = s < splits ? __ldcg(partial + s * all + h * row + a.dim) : -INFINITY;
      largest = fmaxf(largest, top[i]);
    }
#pragma unroll
    for (int apart = kWarp / 2; apart > 0; apart /= 2) largest = fmaxf(largest, __shfl_xor_sync(~0u, largest, apart));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int s = threadIdx.x % kWarp + i * kWarp;
      const float factor = weight_of(top[i], largest);
      weights[h * kMostSplits + s] = factor;
      if (s < splits) total = __fmaf_rn(__ldcg(partial + s * all + h * row + a.dim + 1), factor, total);
    }
#pragma unroll
    for (int apart = kWarp / 2; apart > 0; apart /= 2) total += __shfl_xor_sync(~0u, total, apart);
    if (threadIdx.x % kWarp == 0) totals[h] = total;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x) * 4; i < heads * a.dim; i += kWarps * kWarp * 4) {
    const int h = i / a.dim, e = i % a.dim;
    float4 sum = {0, 0, 0, 0};
#pragma unroll 16
    for (int s = 0; s < splits; ++s) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(partial + s * all + h * row + e));
      const float w = weights[h * kMostSplits + s];
      sum = {__fmaf_rn(x.x, w, sum.x), __fmaf_rn(x.y, w, sum.y), __fmaf_rn(x.z, w, sum.z), __fmaf_rn(x.w, w, sum.w)};
    }
    write(h, e, sum.x / totals[h]);
    write(h, e + 1, sum.y / totals[h]);
    write(h, e + 2, sum.z / totals[h]);
    write(h, e + 3, sum.w / totals[h]);
  }
}

template <class T, int kGroup>
void launch(CudaStream& stream, const DecodeAttention& op) {
  const int dim = static_cast<int>(op.q.head_dim), group = static_cast<int>(op.q.heads / op.keys.heads);
  const int parts = (group + kGroup - 1) / kGroup, length = static_cast<int>(op.keys.rows);
  const int rounds = (length + kRound * kMostSplits - 1) / (kRound * kMostSplits), each = rounds * kRound;
  const std::int64_t window = op.options.window;
  const int first = window > 0 && window < length ? static_cast<int>(length - window) : 0;
  const dim3 blocks(static_cast<unsigned>((length + each - 1) / each), static_cast<unsigned>(op.keys.heads * parts),
                    static_cast<unsigned>(op.q.batch));
  const std::size_t row_bytes = static_cast<std::size_t>(kGroup * (dim + kRowEnd)) * sizeof(float);
  const std::size_t shared_bytes = std::max(kWarps * row_bytes, (kMostSplits + 1) * kGroup * sizeof(float));
  float* const partial = reinterpret_cast<float*>(stream.workspace(row_bytes * blocks.x * blocks.y * blocks.z));
  const Arguments a{pointer_of(op.q),
                    pointer_of(op.k),
                    pointer_of(op.v),
                    pointer_of(op.keys),
                    pointer_of(op.values),
                    pointer_of(op.out),
                    op.cosines.as<float>(),
                    op.sines.as<float>(),
                    dim,
                    group,
                    parts,
                    length,
                    first,
                    each,
                    op.options.scale,
                    partial,
                    stream.counters()};
  launch_early(stream, "attention of one position", decode_kernel<T, kGroup>, {blocks, kWarps * kWarp, shared_bytes},
               a);
}

template <class T>
void launch(CudaStream& stream, const DecodeAttention& op) {
  // With few keys it is the blocks that are few: more of them share a key head.
  constexpr std::int64_t kFewKeys = 1024;
  const std::int64_t group = op.q.heads / op.keys.heads;
  if (group == 1) return launch<T, 1>(stream, op);
  if (group == 2 || op.keys.rows <= kFewKeys) return launch<T, 2>(stream, op);
  if constexpr (sizeof(T) == 2)
    if (group > 4) return launch<T, 8>(stream, op);
  launch<T, 4>(stream, op);
}

bool aligned(const ConstHeads& x) { return packable(x.data) && packable(x.row_stride) && packable(x.batch_stride); }

}  // namespace

bool takes(CudaStream& stream, const DecodeAttention& op) {
  const std::int64_t dim = op.q.head_dim, pieces_of_heads = op.q.heads;
  return !stream.batch_invariant() && op.q.rows == 1 && dim % (2 * kPack) == 0 && dim <= kMostDim &&
         op.keys.dtype == op.q.dtype && op.keys.rows >= 1 && op.options.dropout == 0 && aligned(op.q) &&
         aligned(op.k) && aligned(op.v) && aligned(op.keys) && aligned(op.values) &&
         all_packable(op.cosines.data, op.sines.data) &&
         op.q.batch * pieces_of_heads <= static_cast<std::int64_t>(CudaStream::kCounters);
}

void attend(CudaStream& stream, const DecodeAttention& op) {
  with_float_type(op.q.dtype, [&](auto zero) { launch<decltype(zero)>(stream, op); });
}

}  // namespace zeepo
