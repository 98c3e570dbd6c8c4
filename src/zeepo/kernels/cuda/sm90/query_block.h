// A thread block that has 64 queries a warpgroup and goes over the keys that they see: what the forward pass and the
// gradients of queries share.
//
// Shared memory has the queries' tiles, then a ring of stages with a tile of keys and one of values each, then the
// ring's barriers and one for the queries. Thread 0 starts all copies.
#pragma once

#include <algorithm>

#include "zeepo/kernels/cuda/attention_arguments.h"
#include "zeepo/kernels/cuda/sm90/attention_math.h"
#include "zeepo/kernels/cuda/sm90/tile.h"

namespace zeepo::cuda::sm90 {

// With `blocks` of them on a multiprocessor, one computes while another waits. `query_tiles`: q alone, or dout too.
template <int columns, int keys, int warpgroups, int blocks, bool dropout, int query_tiles>
struct QueryBlockPlan {
  using Queries = Tile<64 * warpgroups, columns>;
  using Keys = Tile<keys, columns>;
  static constexpr int kKeys = keys, kQueries = 64 * warpgroups, kQueryTiles = query_tiles;
  static constexpr int kQueryBytes = query_tiles * Queries::kBytes;
  static constexpr int kStageBytes = 2 * Keys::kBytes;
  static constexpr int kStages = std::min(4, (kSharedBytes / blocks - kQueryBytes) / kStageBytes);
  // Sums of one step are left running into the next where there are stages and registers enough.
  static constexpr bool kOverlap = kStages > 2 && blocks == 1 && !dropout;
  static constexpr int kAhead = kOverlap ? kStages - 2 : kStages - 1;
  using Ring = Stages<kStages, 4 * warpgroups>;
  static constexpr int kBytes = kQueryBytes + kStages * kStageBytes + Ring::kBytes + 16;
};

template <class P>
struct QueryBlock {
  const AttentionExtents& x;
  const CUtensorMap &k_map, &v_map;
  std::uint32_t base;
  typename P::Ring ring;
  int b, h, kv;
  int i0;            // the first query
  int begin, steps;  // the first key; blocks of keys

  // Grid: (batch · heads, blocks of queries). Ends with a barrier of the block.
  __device__ __forceinline__ QueryBlock(const void* memory, const AttentionExtents& extents, const CUtensorMap& k,
                                        const CUtensorMap& v)
      : x(extents),
        k_map(k),
        v_map(v),
        base(shared_address(memory)),
        ring(first_stage() + P::kStages * P::kStageBytes),
        b(blockIdx.x / x.heads),
        h(blockIdx.x % x.heads),
        kv(h / x.group()),
        i0((gridDim.y - 1 - blockIdx.y) * P::kQueries),  // the last queries see the most keys and come first
        begin(x.first_key(i0) / P::kKeys * P::kKeys),
        steps((x.end_key(i0, P::kQueries) - begin + P::kKeys - 1) / P::kKeys) {
    if (threadIdx.x == 0) {
      ring.init();
      queries_here().init(1);
      publish_barriers();
    }
    __syncthreads();
  }

  __device__ __forceinline__ typename P::Queries queries(int tile) const {
    return {base + static_cast<std::uint32_t>(tile * P::Queries::kBytes)};
  }
  __device__ __forceinline__ typename P::Keys k_tile(int step) const {
    return {first_stage() + step % P::kStages * P::kStageBytes};
  }
  __device__ __forceinline__ typename P::Keys v_tile(int step) const {
    return {k_tile(step).address + P::Keys::kBytes};
  }
  __device__ __forceinline__ int first_key(int step) const { return begin + step * P::kKeys; }

  // Starts the copies of the queries' tiles, one from each map, and of the first keys.
  template <class... Maps>
  __device__ __forceinline__ void start(const Maps&... maps) const {
    static_assert(sizeof...(maps) == P::kQueryTiles);
    if (threadIdx.x == 0) {
      queries_here().announce(P::kQueryBytes);
      int tile = 0;
      (load(queries(tile++), maps, b, h, i0, queries_here()), ...);
      for (int step = 0; step < P::kAhead && step < steps; ++step) fill(step);
    }
    __syncwarp();
  }
  __device__ __forceinline__ void wait_for_queries() const { queries_here().wait(0); }
  __device__ __forceinline__ void fill_ahead(int step) const {
    if (threadIdx.x == 0 && step + P::kAhead < steps) fill(step + P::kAhead);
    __syncwarp();
  }

 private:
  __device__ __forceinline__ std::uint32_t first_stage() const { return base + P::kQueryBytes; }
  __device__ __forceinline__ Barrier queries_here() const {
    return {first_stage() + P::kStages * P::kStageBytes + P::Ring::kBytes};
  }
  __device__ __forceinline__ void fill(int step) const {
    const Barrier barrier = ring.fill(step, P::kStageBytes);
    load(k_tile(step), k_map, b, kv, first_key(step), barrier);
    load(v_tile(step), v_map, b, kv, first_key(step), barrier);
  }
};

}  // namespace zeepo::cuda::sm90
