#include <algorithm>

#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/shared_memory.h"
#include "zeepo/kernels/cuda/sm90/attention_backward.h"
#include "zeepo/kernels/cuda/sm90/attention_math.h"
#include "zeepo/kernels/cuda/sm90/kept_weights.h"

namespace zeepo::cuda::sm90 {
namespace {

struct Arguments {
  AttentionExtents x;
  HeadsPointer dk, dv;
  const float2* row_terms;
  int parts;
  float* partials;
  CUtensorMap q, dout, k, v;
};

constexpr int kQueries = 64;

// Which gradients a kernel sums: both, or one, where the registers do not hold both.
enum class Sum { both, keys, values };

// A block has 64 keys a warpgroup and goes over the queries that see them. Products are computed transposed, keys ×
// queries, so that weights are left operands as they come out of them.
template <int columns, int warpgroups, bool dropout>
struct Plan {
  using Keys = Tile<64 * warpgroups, columns>;
  using Queries = Tile<kQueries, columns>;
  static constexpr int kTermsBytes = kQueries * 8;
  static constexpr int kFillBytes = 2 * Queries::kBytes + kTermsBytes;
  static constexpr int kStageBytes = 2 * Queries::kBytes + 1024;
  static constexpr int kStages = std::min(4, (kSharedBytes - 2 * Keys::kBytes) / kStageBytes);
  // Sums of one step are left running into the next where there are stages and registers enough.
  static constexpr bool kOverlap = kStages > 2 && !dropout;
  static constexpr int kAhead = kOverlap ? kStages - 2 : kStages - 1;
  using Ring = Stages<kStages, 4 * warpgroups, Return::by_thread>;
  static constexpr int kBytes = 2 * Keys::kBytes + kStages * kStageBytes + Ring::kBytes + 16;
};

// Two neighbouring rows' terms.
__device__ __forceinline__ float4 shared_terms(std::uint32_t address) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "r"(address)
               : "memory");
  return x;
}

template <class T, int columns, int warpgroups, Sum sum, bool dropout>
__global__ void __launch_bounds__(128 * warpgroups, 1) dkv_kernel(const __grid_constant__ Arguments a) {
  using P = Plan<columns, warpgroups, dropout>;
  constexpr bool kWantKeys = sum != Sum::values, kWantValues = sum != Sum::keys;
  extern __shared__ __align__(1024) unsigned char memory[];
  const std::uint32_t base = shared_address(memory);
  const typename P::Keys k{base}, v{base + P::Keys::kBytes};
  const std::uint32_t first_stage = base + 2 * P::Keys::kBytes;
  const auto q_tile = [&](int step) { return typename P::Queries{first_stage + step % P::kStages * P::kStageBytes}; };
  const auto dout_tile = [&](int step) { return typename P::Queries{q_tile(step).address + P::Queries::kBytes}; };
  const auto terms_of = [&](int step) { return q_tile(step).address + 2 * P::Queries::kBytes; };
  const typename P::Ring ring(first_stage + P::kStages * P::kStageBytes);
  const Barrier keys_here{first_stage + P::kStages * P::kStageBytes + P::Ring::kBytes};
  if (threadIdx.x == 0) {
    ring.init();
    keys_here.init(1);
    publish_barriers();
  }
  __syncthreads();

  const AttentionExtents& x = a.x;
  const int part = blockIdx.x % a.parts, kv = blockIdx.x / a.parts % x.kv_heads, b = blockIdx.x / a.parts / x.kv_heads;
  const int heads = x.group() / a.parts, h0 = kv * x.group() + part * heads;
  const int j0 = blockIdx.y * 64 * warpgroups;  // the first keys are seen by the most queries and come first
  const int begin = x.first_query(j0) / kQueries * kQueries, end = x.end_query(j0, 64 * warpgroups);
  const int blocks = (end - begin + kQueries - 1) / kQueries, steps = heads * blocks;
  const auto fill = [&](int step) {
    const int h = h0 + step / blocks, i = begin + step % blocks * kQueries;
    const Barrier barrier = ring.fill(step, P::kFillBytes);
    load(q_tile(step), a.q, b, h, i, barrier);
    load(dout_tile(step), a.dout, b, h, i, barrier);
    const std::int64_t length = (x.queries + 63) / 64 * 64;
    load_bytes(terms_of(step), a.row_terms + (std::int64_t{b} * x.heads + h) * length + i, P::kTermsBytes, barrier);
  };
  const auto fill_ahead = [&](int step) {
    if (threadIdx.x == 0 && step + P::kAhead < steps) fill(step + P::kAhead);
    __syncwarp();
  };
  if (threadIdx.x == 0) {
    keys_here.announce(2 * P::Keys::kBytes);
    load(k, a.k, b, kv, j0, keys_here);
    load(v, a.v, b, kv, j0, keys_here);
    for (int step = 0; step < P::kAhead && step < steps; ++step) fill(step);
  }
  __syncwarp();
  keys_here.wait(0);

  const Lane lane;
  const int j = j0 + 64 * lane.warpgroup;  // this warpgroup's first key
  const float factor = x.scale * kLog2e;
  Sums<columns> dk, dv;
  dk.clear();
  dv.clear();
  int block = 0;
  for (int step = 0; step < steps; ++step) {
    ring.wait(step);
    const int i = begin + block * kQueries;
    if (++block == blocks) block = 0;
    float weights[kQueries / 2], dweights[kQueries / 2];
    fence_registers();
    dot_rows<T>(weights, k, 64 * lane.warpgroup, q_tile(step));
    close_group();
    if constexpr (kWantKeys) {
      dot_rows<T>(dweights, v, 64 * lane.warpgroup, dout_tile(step));
      close_group();
    }
    fill_ahead(step);
    if (P::kOverlap && step > 0) {
      wait<kWantKeys ? 2 : 1>();
      ring.give_back(step - 1);
    }
    wait<kWantKeys ? 1 : 0>();
#pragma unroll
    for (int n = 0; n < kQueries / 2; n += 4) {
      const float4 terms = shared_terms(terms_of(step) + 8 * (2 * n + lane.column));
#pragma unroll
      for (int m = n; m < n + 4; ++m) weights[m] = exp2_fast(__fmaf_rn(weights[m], factor, m % 2 ? terms.z : terms.x));
    }
    if (!x.all_see(i, kQueries, j, 64)) {
#pragma unroll
      for (int n = 0; n < kQueries / 2; ++n)
        if (!x.sees(i + n / 4 * 8 + lane.column + n % 2, j + lane.row + n % 4 / 2 * 8)) weights[n] = 0;
    }
    std::uint32_t left[kQueries / 16][4];
    if constexpr (dropout) {
      const KeptOfKeys kept(x, b, h0 + step / blocks, lane, i, j);
      const float keep_factor = 1 / (1 - x.dropout);
      if constexpr (kWantValues) {
        float dropped[kQueries / 2];
#pragma unroll
        for (int n = 0; n < kQueries / 2; ++n) dropped[n] = kept[n] ? weights[n] * keep_factor : 0;
        pack_all<T>(dropped, left);
      }
      wait<0>();
      if constexpr (kWantKeys) {
#pragma unroll
        for (int n = 0; n < kQueries / 2; ++n) dweights[n] = kept[n] ? dweights[n] * keep_factor : 0;
      }
    } else if constexpr (kWantValues) {
      pack_all<T>(weights, left);
    }
    if constexpr (kWantValues) {
      fence_registers();
      dv.template add<T>(left, dout_tile(step));
      close_group();
    }
    if constexpr (kWantKeys) {
      wait<kWantValues ? 1 : 0>();
#pragma unroll
      for (int n = 0; n < kQueries / 2; n += 4) {
        const float4 terms = shared_terms(terms_of(step) + 8 * (2 * n + lane.column));
#pragma unroll
        for (int m = n; m < n + 4; ++m) weights[m] *= dweights[m] - (m % 2 ? terms.w : terms.y);
      }
      std::uint32_t dleft[kQueries / 16][4];
      pack_all<T>(weights, dleft);
      fence_registers();
      dk.template add<T>(dleft, q_tile(step));
      close_group();
    }
    if (!P::kOverlap) {
      wait<0>();
      ring.give_back(step);
    }
  }
  wait<0>();
  const auto write = [&](const Sums<columns>& sums, const HeadsPointer& to, float* partial) {
    if (a.parts == 1) return store(sums, lane, head_of<T>(to, b, kv, x.dim), to.row_stride, j, x.keys, x.dim);
    sums.each_pair(lane, [&](int row, int column, float low, float high) {
      const int key = j + lane.row + row;
      if (key >= x.keys || column >= x.dim) return;
      const std::int64_t at = (((std::int64_t{part} * x.batch + b) * x.keys + key) * x.kv_heads + kv) * x.dim + column;
      *reinterpret_cast<float2*>(partial + at) = {low, high};
    });
  };
  const std::int64_t part_elements = std::int64_t{x.batch} * x.keys * x.kv_heads * x.dim;
  if constexpr (kWantKeys) {
    dk.scale(x.scale, x.scale);
    write(dk, a.dk, a.partials);
  }
  if constexpr (kWantValues) write(dv, a.dv, a.partials + a.parts * part_elements);
}

struct Operands {
  AttentionBackward x;
  AttentionExtents extents;
  const float2* row_terms;
  int parts;
  float* partials;
};

template <class T, int columns, int warpgroups, Sum sum, bool dropout>
void launch(cudaStream_t stream, const Operands& o) {
  constexpr int kBytes = Plan<columns, warpgroups, dropout>::kBytes, kKeys = 64 * warpgroups;
  const auto kernel = dkv_kernel<T, columns, warpgroups, sum, dropout>;
  allow_shared_bytes(kernel, kBytes, "attention_backward");
  const Arguments a{o.extents,
                    pointer_of(o.x.dk),
                    pointer_of(o.x.dv),
                    o.row_terms,
                    o.parts,
                    o.partials,
                    tensor_map(o.x.q, kQueries),
                    tensor_map(o.x.dout, kQueries),
                    tensor_map(o.x.k, kKeys),
                    tensor_map(o.x.v, kKeys)};
  const dim3 grid(a.x.batch * a.x.kv_heads * o.parts, (a.x.keys + kKeys - 1) / kKeys);
  kernel<<<grid, 128 * warpgroups, kBytes, stream>>>(a);
  check_launch();
}

template <class T, bool dropout>
void launch(cudaStream_t stream, const Operands& o) {
  if (o.x.q.head_dim <= 64) {
    launch<T, 64, 2, Sum::both, dropout>(stream, o);
  } else if (o.x.q.head_dim <= 128) {
    launch<T, 128, 2, Sum::both, dropout>(stream, o);
  } else {
    launch<T, 256, 1, Sum::values, dropout>(stream, o);
    launch<T, 256, 1, Sum::keys, dropout>(stream, o);
  }
}

}  // namespace

void key_gradients(cudaStream_t stream, const AttentionBackward& x, const AttentionExtents& extents,
                   const float2* row_terms, int parts, float* partials) {
  const Operands o{x, extents, row_terms, parts, partials};
  if (x.q.dtype == DType::bf16)
    return extents.dropout > 0 ? launch<__nv_bfloat16, true>(stream, o) : launch<__nv_bfloat16, false>(stream, o);
  return extents.dropout > 0 ? launch<__half, true>(stream, o) : launch<__half, false>(stream, o);
}

}  // namespace zeepo::cuda::sm90
