#include <algorithm>

#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/sm90/attention.h"
#include "zeepo/kernels/cuda/sm90/attention_math.h"
#include "zeepo/kernels/cuda/sm90/kept_weights.h"

namespace zeepo::cuda::sm90 {
namespace {

struct Arguments {
  AttentionExtents x;
  HeadsPointer out;
  float* log_sums;  // may be null
  CUtensorMap q, k, v;
};

// A block has 64 queries a warpgroup and goes over the keys that they see. With `blocks` of them on a multiprocessor,
// one computes while another waits.
template <int columns, int keys, int warpgroups, int blocks, bool dropout>
struct Plan {
  using Queries = Tile<64 * warpgroups, columns>;
  using Keys = Tile<keys, columns>;
  static constexpr int kStageBytes = 2 * Keys::kBytes;
  static constexpr int kStages = std::min(4, (kSharedBytes / blocks - Queries::kBytes) / kStageBytes);
  // Sums of one step are left running into the next where there are stages and registers enough.
  static constexpr bool kOverlap = kStages > 2 && blocks == 1 && !dropout;
  static constexpr int kAhead = kOverlap ? kStages - 2 : kStages - 1;
  using Ring = Stages<kStages, 4 * warpgroups>;
  static constexpr int kBytes = Queries::kBytes + kStages * kStageBytes + Ring::kBytes + 16;
};

// A softmax that has seen some of its row; the sum is of this thread's columns only.
struct Running {
  float max = -INFINITY, sum = 0;
};

// Turns products into weights 2^(factor · (x − max)) and returns the factor for what was summed with the old maximum.
template <int n>
__device__ __forceinline__ float weigh(float (&products)[n], int r, float factor, Running& state) {
  float max = state.max;
#pragma unroll
  for (int i = 0; i < n; i += 4) max = fmaxf(max, fmaxf(products[i + 2 * r], products[i + 2 * r + 1]));
  max = fmaxf(max, __shfl_xor_sync(~0u, max, 1));
  max = fmaxf(max, __shfl_xor_sync(~0u, max, 2));
  const float shift = max == -INFINITY ? 0 : -max * factor;
  const float correction = max == state.max ? 1 : exp2_fast(__fmaf_rn(state.max, factor, shift));
  float sum = 0;
#pragma unroll
  for (int i = 0; i < n; i += 4)
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      float& x = products[i + 2 * r + c];
      x = exp2_fast(__fmaf_rn(x, factor, shift));
      sum += x;
    }
  state = {max, __fmaf_rn(state.sum, correction, sum)};
  return correction;
}

template <class T, int columns, int keys, int warpgroups, int blocks, bool dropout>
__global__ void __launch_bounds__(128 * warpgroups, blocks) forward_kernel(const __grid_constant__ Arguments a) {
  using P = Plan<columns, keys, warpgroups, blocks, dropout>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const std::uint32_t base = shared_address(memory);
  const typename P::Queries q{base};
  const std::uint32_t first_stage = base + P::Queries::kBytes;
  const auto k_tile = [&](int step) { return typename P::Keys{first_stage + step % P::kStages * P::kStageBytes}; };
  const auto v_tile = [&](int step) { return typename P::Keys{k_tile(step).address + P::Keys::kBytes}; };
  const typename P::Ring ring(first_stage + P::kStages * P::kStageBytes);
  const Barrier queries_here{first_stage + P::kStages * P::kStageBytes + P::Ring::kBytes};
  if (threadIdx.x == 0) {
    ring.init();
    queries_here.init(1);
    publish_barriers();
  }
  __syncthreads();

  const AttentionExtents& x = a.x;
  const int b = blockIdx.x / x.heads, h = blockIdx.x % x.heads, kv = h / x.group();
  // The last queries see the most keys and come first.
  const int i0 = (gridDim.y - 1 - blockIdx.y) * 64 * warpgroups;
  const int begin = x.first_key(i0) / keys * keys, end = x.end_key(i0, 64 * warpgroups);
  const int steps = (end - begin + keys - 1) / keys;
  const auto fill = [&](int step) {
    const Barrier barrier = ring.fill(step, P::kStageBytes);
    load(k_tile(step), a.k, b, kv, begin + step * keys, barrier);
    load(v_tile(step), a.v, b, kv, begin + step * keys, barrier);
  };
  const auto fill_ahead = [&](int step) {
    if (threadIdx.x == 0 && step + P::kAhead < steps) fill(step + P::kAhead);
    __syncwarp();
  };
  if (threadIdx.x == 0) {
    queries_here.announce(P::Queries::kBytes);
    load(q, a.q, b, h, i0, queries_here);
    for (int step = 0; step < P::kAhead && step < steps; ++step) fill(step);
  }
  __syncwarp();
  queries_here.wait(0);

  const Lane lane;
  const int i = i0 + 64 * lane.warpgroup;  // this warpgroup's first query
  const float factor = x.scale * kLog2e;
  Running state[2];
  Sums<columns> out;
  out.clear();
  for (int step = 0; step < steps; ++step) {
    fill_ahead(step);
    ring.wait(step);
    const int j = begin + step * keys;
    float weights[keys / 2];
    fence_registers();
    dot_rows<T>(weights, q, 64 * lane.warpgroup, k_tile(step));
    close_group();
    if (P::kOverlap && step > 0) {
      wait<1>();
      ring.give_back(step - 1);
    }
    wait<0>();
    if (!x.all_see(i, 64, j, keys)) {
#pragma unroll
      for (int n = 0; n < keys / 2; ++n)
        if (!x.sees(i + lane.row + n % 4 / 2 * 8, j + n / 4 * 8 + lane.column + n % 2)) weights[n] = -INFINITY;
    }
    const float correction0 = weigh(weights, 0, factor, state[0]), correction8 = weigh(weights, 1, factor, state[1]);
    out.scale(correction0, correction8);
    if constexpr (dropout) {
      const KeptOfQueries kept(x, b, h, lane, i, j);
      const float keep_factor = 1 / (1 - x.dropout);
#pragma unroll
      for (int m = 0; m < keys / 2; ++m) weights[m] = kept[m] ? weights[m] * keep_factor : 0;
    }
    std::uint32_t left[keys / 16][4];
    pack_all<T>(weights, left);
    fence_registers();
    out.template add<T>(left, v_tile(step));
    close_group();
    if (!P::kOverlap) {
      wait<0>();
      ring.give_back(step);
    }
  }
  wait<0>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    state[r].sum += __shfl_xor_sync(~0u, state[r].sum, 1);
    state[r].sum += __shfl_xor_sync(~0u, state[r].sum, 2);
    const int row = i + lane.row + 8 * r;
    if (a.log_sums && lane.column == 0 && row < x.queries)
      a.log_sums[(std::int64_t{b} * x.heads + h) * x.queries + row] = state[r].max * x.scale + __logf(state[r].sum);
  }
  out.scale(1 / state[0].sum, 1 / state[1].sum);
  store(out, lane, head_of<T>(a.out, b, h, x.dim), a.out.row_stride, i, x.queries, x.dim);
}

struct Operands {
  ConstHeads q, k, v;
  Heads out;
  View log_sums;
  AttentionOptions options;
};

template <class T, int columns, int keys, int warpgroups, int blocks, bool dropout>
void launch(cudaStream_t stream, const Operands& o) {
  constexpr int kBytes = Plan<columns, keys, warpgroups, blocks, dropout>::kBytes, kQueries = 64 * warpgroups;
  const auto kernel = forward_kernel<T, columns, keys, warpgroups, blocks, dropout>;
  static const cudaError_t sized = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  cuda_check(sized);
  const Arguments a{AttentionExtents(o.q, o.k, o.options),
                    pointer_of(o.out),
                    o.log_sums.as<float>(),
                    tensor_map(o.q, kQueries),
                    tensor_map(o.k, keys),
                    tensor_map(o.v, keys)};
  const dim3 grid(a.x.batch * a.x.heads, (a.x.queries + kQueries - 1) / kQueries);
  kernel<<<grid, 128 * warpgroups, kBytes, stream>>>(a);
  check_launch();
}

template <class T, bool dropout>
void launch(cudaStream_t stream, const Operands& o) {
  constexpr int kKeys = dropout ? 64 : 128;  // random numbers take registers
  if (o.q.head_dim <= 64)
    launch<T, 64, kKeys, 2, dropout ? 1 : 2, dropout>(stream, o);
  else if (o.q.head_dim <= 128)
    launch<T, 128, kKeys, 2, 1, dropout>(stream, o);
  else
    launch<T, 256, 64, 2, 1, dropout>(stream, o);
}

}  // namespace

bool takes(const ConstHeads& x) {
  return (x.dtype == DType::bf16 || x.dtype == DType::f16) && x.head_dim <= 256 && x.head_dim % 8 == 0 &&
         x.row_stride % 8 == 0 && x.batch_stride % 8 == 0 && reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
}

void forward(cudaStream_t stream, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const Heads& out,
             View log_sums, const AttentionOptions& options) {
  const Operands o{q, k, v, out, log_sums, options};
  if (q.dtype == DType::bf16)
    return options.dropout > 0 ? launch<__nv_bfloat16, true>(stream, o) : launch<__nv_bfloat16, false>(stream, o);
  return options.dropout > 0 ? launch<__half, true>(stream, o) : launch<__half, false>(stream, o);
}

}  // namespace zeepo::cuda::sm90
