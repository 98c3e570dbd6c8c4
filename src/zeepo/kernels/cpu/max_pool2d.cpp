#include <algorithm>
#include <cmath>

#include "zeepo/kernels/conv.h"
#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"

namespace zeepo {
namespace {

// The first of the largest elements of a window; a NaN wins, as in PyTorch, so that it is not hidden.
template <class T>
std::int64_t largest_in_window(const T* plane, std::int64_t width, std::int64_t corner, std::int64_t size) {
  auto best = corner;
  float best_value = to_float(plane[corner]);
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      const auto place = corner + i * width + j;
      const float value = to_float(plane[place]);
      if (value > best_value || (std::isnan(value) && !std::isnan(best_value))) best = place, best_value = value;
    }
  return best;
}

}  // namespace

void max_pool2d(CpuStream& stream, ConstView x, View y, View indices, std::int64_t size) {
  const auto planes = x.shape[0] * x.shape[1], height = x.shape[2], width = x.shape[3];
  const auto out_height = height / size, out_width = width / size;
  stream.pool().for_range(planes, rows_per_task(height * width), [&](std::int64_t begin, std::int64_t end) {
    with_float_type(x.dtype, [&](auto zero_of_type) {
      using T = decltype(zero_of_type);
      for (auto plane = begin; plane < end; ++plane) {
        const auto* in = x.as<T>() + plane * height * width;
        auto out = plane * out_height * out_width;
        for (std::int64_t i = 0; i < out_height; ++i)
          for (std::int64_t j = 0; j < out_width; ++j, ++out) {
            const auto place = largest_in_window(in, width, (i * width + j) * size, size);
            y.as<T>()[out] = in[place];
            indices.as<std::int32_t>()[out] = static_cast<std::int32_t>(place);
          }
      }
    });
  });
}

void max_pool2d_backward(CpuStream& stream, ConstView dy, ConstView indices, View dx) {
  const auto planes = dx.shape[0] * dx.shape[1], pixels = dx.shape[2] * dx.shape[3];
  const auto outs = dy.shape[2] * dy.shape[3];
  stream.pool().for_range(planes, rows_per_task(pixels), [&](std::int64_t begin, std::int64_t end) {
    with_float_type(dx.dtype, [&](auto zero_of_type) {
      using T = decltype(zero_of_type);
      std::fill(dx.as<T>() + begin * pixels, dx.as<T>() + end * pixels, T{});
      for (auto i = begin * outs; i < end * outs; ++i)  // windows do not overlap: a pixel is hit at most once
        dx.as<T>()[i / outs * pixels + indices.as<std::int32_t>()[i]] = dy.as<T>()[i];
    });
  });
}

}  // namespace zeepo
