// The norm of gradients, in an order that does not depend on how a unit is cut over the ranks.
//
// Squares are summed in leaves of 128 elements of a unit, in fp64 and rounded to fp32; leaves in a binary tree over
// each block of 512 of them, in fp32; blocks one after another, in fp64. A rank's shard is whole leaves, but not whole
// blocks: sum_squares leaves the nodes of the trees that the shard holds completely, as few as there are, and
// merge_norm_nodes completes each block's tree from the nodes of all ranks. Adding zeros is exact, so that leaves past
// the end of a unit change nothing.
#pragma once

#include <bit>
#include <cstdint>

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

// What the step reads from the device: written by finish_norm, so that clipping needs no trip to the host.
struct StepControl {
  float norm;         // global L2 norm of the unscaled gradients
  float grad_factor;  // what each gradient is multiplied by: 1/loss_scale, times min(1, clip/(norm + 1e-6))
  float skip;         // 1 when a gradient is infinite or NaN and the step must change nothing
};

inline constexpr std::int64_t kNormLeaf = 128, kNormLeaves = 512, kNormBlock = kNormLeaf * kNormLeaves;
inline constexpr int kNormLevels = 9;  // of a block's tree, above its leaves

inline constexpr std::int64_t norm_blocks(std::int64_t elements) { return (elements + kNormBlock - 1) / kNormBlock; }

// The largest node that starts at leaf `first` of a block and ends at leaf `end` or before.
constexpr int node_level(std::uint32_t first, std::uint32_t end) {
  const int aligned = first == 0 ? kNormLevels : std::countr_zero(first), fitting = std::bit_width(end - first) - 1;
  return aligned < fitting ? aligned : fitting;
}

// Calls f(block, first leaf, level) for each node of elements [begin, begin + elements) of a unit, in order. `begin` is
// a multiple of kNormLeaf.
template <class F>
constexpr void for_norm_nodes(std::int64_t begin, std::int64_t elements, F&& f) {
  const std::int64_t end = (begin + elements + kNormLeaf - 1) / kNormLeaf;
  for (std::int64_t leaf = begin / kNormLeaf; leaf < end;) {
    const std::int64_t block = leaf / kNormLeaves, origin = block * kNormLeaves;
    const auto first = static_cast<std::uint32_t>(leaf - origin);
    const auto last = static_cast<std::uint32_t>(end - origin < kNormLeaves ? end - origin : kNormLeaves);
    const int level = node_level(first, last);
    f(block, first, level);
    leaf += std::int64_t{1} << level;
  }
}
// How many there are. A whole block is one: only those at either end are looked at.
constexpr std::int64_t norm_nodes(std::int64_t begin, std::int64_t elements) {
  const auto counted = [](std::int64_t from, std::int64_t to) {
    std::int64_t count = 0;
    for_norm_nodes(from, to - from, [&](std::int64_t, std::uint32_t, int) { ++count; });
    return count;
  };
  const std::int64_t end = begin + elements;
  const std::int64_t whole_from = (begin + kNormBlock - 1) / kNormBlock, whole_to = end / kNormBlock;
  if (whole_from >= whole_to) return counted(begin, end);
  return counted(begin, whole_from * kNormBlock) + (whole_to - whole_from) + counted(whole_to * kNormBlock, end);
}

// nodes (fp32): those of x, which is elements [begin, begin + x.elements()) of a unit.
void sum_squares(CpuStream&, ConstView x, std::int64_t begin, View nodes);
void sum_squares(CudaStream&, ConstView x, std::int64_t begin, View nodes);
void sum_squares(DryStream&, ConstView x, std::int64_t begin, View nodes);
// blocks[i] = the sum of block i's tree. table (int32): for each block where its entries begin, and where the last
// one's end; then two numbers an entry, in the order of leaves, which start at 0: an index into nodes and the node's
// level.
void merge_norm_nodes(CpuStream&, ConstView nodes, ConstView table, View blocks);
void merge_norm_nodes(CudaStream&, ConstView nodes, ConstView table, View blocks);
void merge_norm_nodes(DryStream&, ConstView nodes, ConstView table, View blocks);
// control: fp32 (3), a StepControl. partials are summed in order, in fp64. clip <= 0: no clipping.
void finish_norm(CpuStream&, ConstView partials, float loss_scale, float clip, View control);
void finish_norm(CudaStream&, ConstView partials, float loss_scale, float clip, View control);
void finish_norm(DryStream&, ConstView partials, float loss_scale, float clip, View control);

}  // namespace zeepo
