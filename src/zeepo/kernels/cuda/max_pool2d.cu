#include "zeepo/kernels/conv.h"
#include "zeepo/kernels/cuda/rows.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// The first of the largest elements of each window, a thread each; a NaN wins, so that it is not hidden.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool2d_kernel(const T* x, int height, int width, int size, T* y, std::int32_t* indices, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int across = width / size, down = height / size;
  const T* plane = x + i / (across * down) * height * width;
  const int window = static_cast<int>(i % (across * down)), corner = (window / across * width + window % across) * size;
  int best = corner;
  float best_value = widen(plane[corner]);
  for (int a = 0; a < size; ++a)
    for (int b = 0; b < size; ++b) {
      const int place = corner + a * width + b;
      const float value = widen(plane[place]);
      if (value > best_value || value != value) {
        best = place;
        best_value = value;
      }
    }
  y[i] = plane[best];
  indices[i] = best;
}

// Windows do not overlap: a pixel is hit at most once.
template <class T>
__global__ void __launch_bounds__(kThreads)
    max_pool2d_backward_kernel(const T* dy, const std::int32_t* indices, T* dx, std::int64_t outs, std::int64_t pixels,
                               std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < count) dx[i / outs * pixels + indices[i]] = dy[i];
}

}  // namespace

void max_pool2d(CudaStream& stream, ConstView x, View y, View indices, std::int64_t size) {
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_rows(stream, "max_pool2d", max_pool2d_kernel<T>, pieces(y.elements(), kThreads), kThreads, 0, x.as<T>(),
                static_cast<int>(x.shape[2]), static_cast<int>(x.shape[3]), static_cast<int>(size), y.as<T>(),
                indices.as<std::int32_t>(), y.elements());
  });
}

void max_pool2d_backward(CudaStream& stream, ConstView dy, ConstView indices, View dx) {
  cuda_check(cudaMemsetAsync(dx.data, 0, dx.bytes(), stream.handle()));
  with_float_type(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_rows(stream, "max_pool2d_backward", max_pool2d_backward_kernel<T>, pieces(dy.elements(), kThreads), kThreads,
                0, dy.as<T>(), indices.as<std::int32_t>(), dx.as<T>(), dy.shape[2] * dy.shape[3],
                dx.shape[2] * dx.shape[3], dy.elements());
  });
}

}  // namespace zeepo
