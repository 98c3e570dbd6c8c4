#include "zeepo/kernels/cpu/conv2d_columns.h"

#include <algorithm>

namespace zeepo {
namespace {

// Calls line(c·height + y, x, first, last, start) for every line of places whose tap falls on image line y: places
// first to last of the line touch pixels x, x + stride, ..., the others only padding. `start` is the line's element in
// columns. For a line wholly in the padding, y is −1.
template <class Line>
void for_lines(const Conv2dShape& s, const Line& line) {
  std::int64_t start = 0;
  for (std::int64_t c = 0; c < s.in_channels; ++c)
    for (std::int64_t i = 0; i < s.kernel_height; ++i)
      for (std::int64_t j = 0; j < s.kernel_width; ++j) {
        const auto shift = j - s.padding;  // the pixel of place 0
        const auto first = std::min(s.out_width, shift < 0 ? (-shift + s.stride - 1) / s.stride : 0);
        const auto end = s.width > shift ? std::min(s.out_width, (s.width - shift - 1) / s.stride + 1) : 0;
        for (std::int64_t place = 0; place < s.out_height; ++place, start += s.out_width) {
          const auto y = place * s.stride + i - s.padding;
          const bool inside = y >= 0 && y < s.height && first < end;
          line(inside ? c * s.height + y : -1, shift + first * s.stride, first, std::max(first, end), start);
        }
      }
}

}  // namespace

void image_to_columns(const Conv2dShape& s, const float* image, float* columns) {
  for_lines(s, [&](std::int64_t y, std::int64_t x, std::int64_t first, std::int64_t end, std::int64_t start) {
    float* out = columns + start;
    if (y < 0) {
      std::fill(out, out + s.out_width, 0.0f);
      return;
    }
    const float* in = image + y * s.width + x;
    std::fill(out, out + first, 0.0f);
    if (s.stride == 1)
      std::copy(in, in + (end - first), out + first);
    else
      for (auto place = first; place < end; ++place) out[place] = in[(place - first) * s.stride];
    std::fill(out + end, out + s.out_width, 0.0f);
  });
}

void add_columns_to_image(const Conv2dShape& s, const float* columns, float* image) {
  for_lines(s, [&](std::int64_t y, std::int64_t x, std::int64_t first, std::int64_t end, std::int64_t start) {
    if (y < 0) return;
    float* pixels = image + y * s.width + x;
    for (auto place = first; place < end; ++place) pixels[(place - first) * s.stride] += columns[start + place];
  });
}

}  // namespace zeepo
