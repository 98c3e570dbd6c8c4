#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/shared_memory.h"
#include "zeepo/kernels/cuda/sm90/attention.h"
#include "zeepo/kernels/cuda/sm90/attention_math.h"
#include "zeepo/kernels/cuda/sm90/kept_weights.h"
#include "zeepo/kernels/cuda/sm90/query_block.h"

namespace zeepo::cuda::sm90 {
namespace {

struct Arguments {
  AttentionExtents x;
  HeadsPointer out;
  float* log_sums;  // may be null
  CUtensorMap q, k, v;
};

template <int columns, int keys, int warpgroups, int blocks, bool dropout>
using Plan = QueryBlockPlan<columns, keys, warpgroups, blocks, dropout, 1>;

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
  const QueryBlock<P> block(memory, a.x, a.k, a.v);
  block.start(a.q);
  block.wait_for_queries();

  const AttentionExtents& x = a.x;
  const int b = block.b, h = block.h;
  const Lane lane;
  const int i = block.i0 + 64 * lane.warpgroup;  // this warpgroup's first query
  const float factor = x.scale * kLog2e;
  Running state[2];
  Sums<columns> out;
  out.clear();
  for (int step = 0; step < block.steps; ++step) {
    block.fill_ahead(step);
    block.ring.wait(step);
    const int j = block.first_key(step);
    float weights[keys / 2];
    fence_registers();
    dot_rows<T>(weights, block.queries(0), 64 * lane.warpgroup, block.k_tile(step));
    close_group();
    if (P::kOverlap && step > 0) {
      wait<1>();
      block.ring.give_back(step - 1);
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
    out.template add<T>(left, block.v_tile(step));
    close_group();
    if (!P::kOverlap) {
      wait<0>();
      block.ring.give_back(step);
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
  allow_shared_bytes(kernel, kBytes, "attention");
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
