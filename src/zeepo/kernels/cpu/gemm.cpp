#include "zeepo/kernels/cpu/gemm.h"

#include <algorithm>

#include "zeepo/kernels/cpu/packed_gemm.h"
#include "zeepo/kernels/cpu/scratch.h"

namespace zeepo::cpu {
namespace {

// What is packed at a time: the panels stay in the second cache.
constexpr std::int64_t kRows = 240, kColumns = 512;

std::int64_t rounded_up(std::int64_t n, std::int64_t width) { return (n + width - 1) / width * width; }

}  // namespace

void gemm(std::int64_t m, std::int64_t n, std::int64_t k, Operand a, Operand b, Write write, float* c,
          std::int64_t c_stride) {
  const PanelWidths width = panel_widths();
  const std::int64_t most_depth = std::min(k, kGemmDepth);
  const std::int64_t a_room = rounded_up(std::min(m, kRows), width.rows) * most_depth;
  const std::int64_t b_room = rounded_up(std::min(n, kColumns), width.columns) * most_depth;
  Carve carve(scratch<Scratch::panels>(line_aligned(a_room) + line_aligned(b_room)));
  float *a_panels = carve(a_room), *b_panels = carve(b_room);
  const bool a_along_k = a.transpose == Transpose::no, b_along_k = b.transpose == Transpose::yes;
  for (std::int64_t p = 0; p < k; p += kGemmDepth) {
    const std::int64_t depth = std::min(kGemmDepth, k - p);
    for (std::int64_t j = 0; j < n; j += kColumns) {
      const std::int64_t columns = std::min(kColumns, n - j);
      const float* b_part = b.data + (b_along_k ? j * b.stride + p : p * b.stride + j);
      pack({b_part, DType::f32, b.stride, b_along_k, columns, depth}, width.columns, b_panels);
      for (std::int64_t i = 0; i < m; i += kRows) {
        const std::int64_t rows = std::min(kRows, m - i);
        const float* a_part = a.data + (a_along_k ? i * a.stride + p : p * a.stride + i);
        pack({a_part, DType::f32, a.stride, a_along_k, rows, depth}, width.rows, a_panels);
        float* to = c + i * c_stride + j;
        const float* start = p > 0 || write == Write::add ? to : nullptr;
        multiply({rows, columns, depth, a_panels, b_panels, start, c_stride, to, c_stride});
      }
    }
  }
}

}  // namespace zeepo::cpu
