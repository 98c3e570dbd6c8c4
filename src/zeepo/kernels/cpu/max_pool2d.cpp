#include <algorithm>
#include <cmath>
#include <type_traits>

#include "zeepo/kernels/conv.h"
#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"

namespace zeepo {
namespace {

// The first of the largest elements of a window; a NaN wins, as in PyTorch, so that it is not hidden. Written to
// compile to conditional moves: which element is largest cannot be predicted.
template <class T, class Size>
std::int64_t largest_in_window(const T* plane, std::int64_t width, std::int64_t corner, Size size) {
  auto best = corner;
  float best_value = to_float(plane[corner]);
  for (std::int64_t i = 0; i < size; ++i)
    for (std::int64_t j = 0; j < size; ++j) {
      const auto place = corner + i * width + j;
      const float value = to_float(plane[place]);
      const bool take = (value > best_value) | std::isnan(value);
      best = take ? place : best;
      best_value = take ? value : best_value;
    }
  return best;
}

// `Size` is an integer or, for the common windows, a constant that unrolls the loops over them.
template <class T, class Size>
void pool_planes(const T* x, std::int64_t height, std::int64_t width, Size size, std::int64_t planes, T* y,
                 std::int32_t* indices) {
  for (std::int64_t plane = 0; plane < planes; ++plane, x += height * width)
    for (std::int64_t i = 0; i < height / size; ++i)
      for (std::int64_t j = 0; j < width / size; ++j) {
        const auto place = largest_in_window(x, width, (i * width + j) * size, size);
        *y++ = x[place];
        *indices++ = static_cast<std::int32_t>(place);
      }
}

}  // namespace

void max_pool2d(CpuStream& stream, ConstView x, View y, View indices, std::int64_t size) {
  const auto planes = x.shape[0] * x.shape[1], height = x.shape[2], width = x.shape[3];
  const auto outs = (height / size) * (width / size);
  stream.pool().for_range(planes, rows_per_task(height * width), [&](std::int64_t begin, std::int64_t end) {
    with_float_type(x.dtype, [&](auto zero_of_type) {
      using T = decltype(zero_of_type);
      const auto pool = [&](auto window) {
        pool_planes(x.as<T>() + begin * height * width, height, width, window, end - begin, y.as<T>() + begin * outs,
                    indices.as<std::int32_t>() + begin * outs);
      };
      if (size == 2)
        pool(std::integral_constant<std::int64_t, 2>());
      else
        pool(size);
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
      for (auto plane = begin; plane < end; ++plane)
        for (auto i = plane * outs; i < (plane + 1) * outs; ++i)  // windows do not overlap: a pixel is hit at most once
          dx.as<T>()[plane * pixels + indices.as<std::int32_t>()[i]] = dy.as<T>()[i];
    });
  });
}

}  // namespace zeepo
