// Our own fp32 matrix product: operands of any float type are widened and packed into panels, tiles of the result stay
// in registers while a panel of each passes by.
//
// Every element is one chain of fused multiply-adds over each piece of k, and the pieces are added in order. How rows
// and columns are cut into tasks, how many threads run them and how wide their vectors are changes no bit of it.
#pragma once

#include <cstdint>

#include "zeepo/base/dtype.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo::cpu {

// The widths of the panels on this machine: rows of a and columns of b that one tile of the result has.
struct PanelWidths {
  std::int64_t rows, columns;
};
PanelWidths panel_widths();

// The part of an operand that fills panels: `extent` rows of a (or columns of b) by `depth` of k. `contiguous_k`: it is
// stored with k innermost (a not transposed, b transposed); `stride` counts elements between its stored rows.
struct Part {
  const void* data;
  DType dtype;
  std::int64_t stride;
  bool contiguous_k;
  std::int64_t extent, depth;
};
// Panels of `width`, each (depth, width), one after the other; the last is filled up with zeros.
void pack(const Part& part, std::int64_t width, float* to);

// c = panels of a · panels of b + start. `start` has its own stride: c itself, a bias with stride 0, or null. The chain
// goes on from `open`, or from zero where that is null.
struct PanelProduct {
  std::int64_t rows = 0, columns = 0, depth = 0;
  const float *a = nullptr, *b = nullptr;
  const float* start = nullptr;
  std::int64_t start_stride = 0;
  float* c = nullptr;
  std::int64_t c_stride = 0;
  const float* open = nullptr;
  std::int64_t open_stride = 0;
};
void multiply(const PanelProduct&);

}  // namespace zeepo::cpu
