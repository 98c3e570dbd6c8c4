#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/shared_memory.h"
#include "zeepo/kernels/cuda/sm90/attention_backward.h"
#include "zeepo/kernels/cuda/sm90/attention_math.h"
#include "zeepo/kernels/cuda/sm90/kept_weights.h"
#include "zeepo/kernels/cuda/sm90/query_block.h"

namespace zeepo::cuda::sm90 {
namespace {

struct Arguments {
  AttentionExtents x;
  HeadsPointer dq;
  const float2* row_terms;
  CUtensorMap q, dout, k, v;
};

constexpr int kKeys = 64;

template <int columns, int warpgroups, int blocks, bool dropout>
using Plan = QueryBlockPlan<columns, kKeys, warpgroups, blocks, dropout, 2>;

template <class T, int columns, int warpgroups, int blocks, bool dropout>
__global__ void __launch_bounds__(128 * warpgroups, blocks) dq_kernel(const __grid_constant__ Arguments a) {
  using P = Plan<columns, warpgroups, blocks, dropout>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const QueryBlock<P> block(memory, a.x, a.k, a.v);
  block.start(a.q, a.dout);

  const AttentionExtents& x = a.x;
  const Lane lane;
  const int i = block.i0 + 64 * lane.warpgroup;  // this warpgroup's first query
  const float factor = x.scale * kLog2e;
  float2 terms[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = i + lane.row + 8 * r, length = (x.queries + 63) / 64 * 64;
    terms[r] = row < length ? a.row_terms[std::int64_t{blockIdx.x} * length + row] : float2{0, 0};
  }
  block.wait_for_queries();
  Sums<columns> dq;
  dq.clear();
  for (int step = 0; step < block.steps; ++step) {
    block.ring.wait(step);
    const int j = block.first_key(step);
    float weights[kKeys / 2], dweights[kKeys / 2];
    fence_registers();
    dot_rows<T>(weights, block.queries(0), 64 * lane.warpgroup, block.k_tile(step));
    close_group();
    dot_rows<T>(dweights, block.queries(1), 64 * lane.warpgroup, block.v_tile(step));
    close_group();
    block.fill_ahead(step);
    if (P::kOverlap && step > 0) {
      wait<2>();
      block.ring.give_back(step - 1);
    }
    wait<1>();
    const bool masked = !x.all_see(i, 64, j, kKeys);
#pragma unroll
    for (int n = 0; n < kKeys / 2; ++n) {
      const int r = n % 4 / 2;
      weights[n] = exp2_fast(__fmaf_rn(weights[n], factor, terms[r].x));
    }
    if (masked) {
#pragma unroll
      for (int n = 0; n < kKeys / 2; ++n)
        if (!x.sees(i + lane.row + n % 4 / 2 * 8, j + n / 4 * 8 + lane.column + n % 2)) weights[n] = 0;
    }
    wait<0>();
    if constexpr (dropout) {
      const KeptOfQueries kept(x, block.b, block.h, lane, i, j);
      const float keep_factor = 1 / (1 - x.dropout);
#pragma unroll
      for (int n = 0; n < kKeys / 2; ++n) dweights[n] = kept[n] ? dweights[n] * keep_factor : 0;
    }
#pragma unroll
    for (int n = 0; n < kKeys / 2; ++n) weights[n] *= dweights[n] - terms[n % 4 / 2].y;
    std::uint32_t left[kKeys / 16][4];
    pack_all<T>(weights, left);
    fence_registers();
    dq.template add<T>(left, block.k_tile(step));
    close_group();
    if (!P::kOverlap) {
      wait<0>();
      block.ring.give_back(step);
    }
  }
  wait<0>();
  dq.scale(x.scale, x.scale);
  store(dq, lane, head_of<T>(a.dq, block.b, block.h, x.dim), a.dq.row_stride, i, x.queries, x.dim);
}

struct Operands {
  AttentionBackward x;
  AttentionExtents extents;
  const float2* row_terms;
};

template <class T, int columns, int warpgroups, int blocks, bool dropout>
void launch(cudaStream_t stream, const Operands& o) {
  constexpr int kBytes = Plan<columns, warpgroups, blocks, dropout>::kBytes, kQueries = 64 * warpgroups;
  const auto kernel = dq_kernel<T, columns, warpgroups, blocks, dropout>;
  allow_shared_bytes(kernel, kBytes, "attention_backward");
  const Arguments a{o.extents,
                    pointer_of(o.x.dq),
                    o.row_terms,
                    tensor_map(o.x.q, kQueries),
                    tensor_map(o.x.dout, kQueries),
                    tensor_map(o.x.k, kKeys),
                    tensor_map(o.x.v, kKeys)};
  const dim3 grid(a.x.batch * a.x.heads, (a.x.queries + kQueries - 1) / kQueries);
  kernel<<<grid, 128 * warpgroups, kBytes, stream>>>(a);
  check_launch();
}

template <class T, bool dropout>
void launch(cudaStream_t stream, const Operands& o) {
  if (o.x.q.head_dim <= 64)
    launch<T, 64, 2, dropout ? 1 : 2, dropout>(stream, o);
  else if (o.x.q.head_dim <= 128)
    launch<T, 128, 2, 1, dropout>(stream, o);
  else
    launch<T, 256, 1, 1, dropout>(stream, o);
}

}  // namespace

void query_gradients(cudaStream_t stream, const AttentionBackward& x, const AttentionExtents& extents,
                     const float2* row_terms) {
  const Operands o{x, extents, row_terms};
  if (x.q.dtype == DType::bf16)
    return extents.dropout > 0 ? launch<__nv_bfloat16, true>(stream, o) : launch<__nv_bfloat16, false>(stream, o);
  return extents.dropout > 0 ? launch<__half, true>(stream, o) : launch<__half, false>(stream, o);
}

}  // namespace zeepo::cuda::sm90
