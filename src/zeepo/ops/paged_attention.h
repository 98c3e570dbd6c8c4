// Attention of many sequences in one pass, whose keys and values live in pages.
//
// The sequences of a pass are unequal: each brings its own number of new positions after its own past. Their tokens
// stand one after another in one row of qkv. The result of a sequence is that of the sequence alone: on a CPU to the
// bit.
#pragma once

#include <memory>
#include <span>

#include "zeepo/ops/attention.h"

namespace zeepo {

// Keys and values of one layer, of all sequences.   keys, values: (pages, page_rows, cached_width)
struct LayerPages {
  // On the device, or in the current Device's host memory, where each layer fetches what it needs.
  LayerPages(Shape shape, DType dtype, Place place);

  Shape shape;
  DType dtype;
  Tensor keys, values;                                  // on the device
  std::shared_ptr<const Block> host_keys, host_values;  // in host memory
};

// A sequence in a pass. Position p is row p % page_rows of page pages[p / page_rows].
struct PagedSequence {
  std::int64_t past = 0;                     // positions that the pages hold
  std::int64_t rows = 0;                     // new positions in this pass
  std::span<const std::int32_t> pages = {};  // enough for past + rows; borrowed
};

// Of pages in host memory, sequences that follow each other are fetched together, a block of so many positions at most,
// or one sequence: a block arrives while the one before is used, and all of them go through a layer while its weights
// are there.
inline constexpr std::int64_t kHostBlockPositions = 1024;

// The first block of the layer that comes next in a pass, on its way while this layer goes on.
struct PagesAhead {
  const LayerPages* next = nullptr;  // what to fetch; null: nothing
  const LayerPages* of = nullptr;    // what the block is of
  std::shared_ptr<void> block = {};  // attention()'s own
};

// qkv: (1, all sequences' rows, width). The new positions join the pages. Pages that follow each other are read in
// place; of a sequence with scattered pages, coded ones, or pages in host memory, keys and values are first brought
// together. `ahead` (may be null) passes from layer to layer, whose sequences and heads are the same.
Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options, LayerPages& layer,
                 std::span<const PagedSequence> sequences, PagesAhead* ahead = nullptr);

}  // namespace zeepo
