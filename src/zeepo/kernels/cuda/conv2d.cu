// Convolutions straight from their definition, a thread or a block for each result: right for small image models. The
// scratch that the CPU needs is left alone.
#include "zeepo/kernels/conv.h"
#include "zeepo/kernels/cuda/reduce.h"
#include "zeepo/kernels/cuda/rows.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

struct ConvShape {
  int images, in_channels, height, width;
  int out_channels, kernel_height, kernel_width;
  int stride, padding, out_height, out_width;

  ConvShape(const Shape& x, const Shape& weight, const ConvOptions& o)
      : images(static_cast<int>(x[0])),
        in_channels(static_cast<int>(x[1])),
        height(static_cast<int>(x[2])),
        width(static_cast<int>(x[3])),
        out_channels(static_cast<int>(weight[0])),
        kernel_height(static_cast<int>(weight[2])),
        kernel_width(static_cast<int>(weight[3])),
        stride(static_cast<int>(o.stride)),
        padding(static_cast<int>(o.padding)),
        out_height((height + 2 * padding - kernel_height) / stride + 1),
        out_width((width + 2 * padding - kernel_width) / stride + 1) {}

  __host__ __device__ int taps() const { return kernel_height * kernel_width; }  // of one channel
  __host__ __device__ int places() const { return out_height * out_width; }
  __host__ __device__ int pixels() const { return height * width; }
};

// y[image][o][place], a thread each.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv2d_kernel(ConvShape s, const T* x, const T* weight, const T* bias, T* y, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int place = static_cast<int>(i % s.places()), o = static_cast<int>(i / s.places() % s.out_channels);
  const std::int64_t image = i / s.places() / s.out_channels;
  const int top = place / s.out_width * s.stride - s.padding, left = place % s.out_width * s.stride - s.padding;
  const T* w = weight + static_cast<std::int64_t>(o) * s.in_channels * s.taps();
  float sum = bias ? widen(bias[o]) : 0.0f;
  for (int c = 0; c < s.in_channels; ++c, w += s.taps()) {
    const T* plane = x + (image * s.in_channels + c) * s.pixels();
    for (int a = max(0, -top); a < s.kernel_height && top + a < s.height; ++a)
      for (int b = max(0, -left); b < s.kernel_width && left + b < s.width; ++b)
        sum = __fmaf_rn(widen(w[a * s.kernel_width + b]), widen(plane[(top + a) * s.width + left + b]), sum);
  }
  y[i] = narrow<T>(sum);
}

// dx[image][c][pixel], a thread each: the places whose kernel covers the pixel.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv2d_dx_kernel(ConvShape s, const T* dy, const T* weight, T* dx, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  const int pixel = static_cast<int>(i % s.pixels()), c = static_cast<int>(i / s.pixels() % s.in_channels);
  const std::int64_t image = i / s.pixels() / s.in_channels;
  const int row = pixel / s.width + s.padding, column = pixel % s.width + s.padding;
  float sum = 0;
  for (int o = 0; o < s.out_channels; ++o) {
    const T* plane = dy + (image * s.out_channels + o) * s.places();
    const T* w = weight + (static_cast<std::int64_t>(o) * s.in_channels + c) * s.taps();
    for (int a = 0; a < s.kernel_height; ++a) {
      const int down = row - a;
      if (down < 0 || down % s.stride != 0 || down / s.stride >= s.out_height) continue;
      for (int b = 0; b < s.kernel_width; ++b) {
        const int across = column - b;
        if (across < 0 || across % s.stride != 0 || across / s.stride >= s.out_width) continue;
        sum = __fmaf_rn(widen(w[a * s.kernel_width + b]),
                        widen(plane[down / s.stride * s.out_width + across / s.stride]), sum);
      }
    }
  }
  dx[i] = narrow<T>(sum);
}

// dweight[o][c][a][b], a block each: its threads share out the places of all images.
template <class T, class Sum>
__global__ void __launch_bounds__(kThreads)
    conv2d_dweight_kernel(ConvShape s, const T* dy, const T* x, Sum* dweight, bool add) {
  const int tap = static_cast<int>(blockIdx.x % s.taps());
  const int c = static_cast<int>(blockIdx.x / s.taps() % s.in_channels);
  const int o = static_cast<int>(blockIdx.x / s.taps() / s.in_channels);
  const int down = tap / s.kernel_width - s.padding, across = tap % s.kernel_width - s.padding;
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < std::int64_t{s.images} * s.places(); i += kThreads) {
    const int place = static_cast<int>(i % s.places());
    const std::int64_t image = i / s.places();
    const int row = place / s.out_width * s.stride + down, column = place % s.out_width * s.stride + across;
    if (row < 0 || row >= s.height || column < 0 || column >= s.width) continue;
    const float d = widen(dy[(image * s.out_channels + o) * s.places() + place]);
    sum = __fmaf_rn(d, widen(x[(image * s.in_channels + c) * s.pixels() + row * s.width + column]), sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dweight[blockIdx.x] = narrow<Sum>(add ? widen(dweight[blockIdx.x]) + sum : sum);
}

// dbias[o], a block each.
template <class T, class Sum>
__global__ void __launch_bounds__(kThreads) conv2d_dbias_kernel(ConvShape s, const T* dy, Sum* dbias, bool add) {
  float sum = 0;
  for (std::int64_t i = threadIdx.x; i < std::int64_t{s.images} * s.places(); i += kThreads)
    sum += widen(dy[(i / s.places() * s.out_channels + blockIdx.x) * s.places() + i % s.places()]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) dbias[blockIdx.x] = narrow<Sum>(add ? widen(dbias[blockIdx.x]) + sum : sum);
}

}  // namespace

void conv2d(CudaStream& stream, ConstView x, ConstView weight, ConstView bias, View y, View,
            const ConvOptions& options) {
  const ConvShape s(x.shape, weight.shape, options);
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_rows(stream, "conv2d", conv2d_kernel<T>, pieces(y.elements(), kThreads), kThreads, 0, s, x.as<T>(),
                weight.as<T>(), bias.as<T>(), y.as<T>(), y.elements());
  });
}

void conv2d_backward(CudaStream& stream, const Conv2dBackward& op, const ConvOptions& options) {
  const ConvShape s(op.x.shape, op.weight.shape, options);
  with_float_type(op.dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (op.dx)
      launch_rows(stream, "conv2d_backward", conv2d_dx_kernel<T>, pieces(op.dx.elements(), kThreads), kThreads, 0, s,
                  op.dy.as<T>(), op.weight.as<T>(), op.dx.as<T>(), op.dx.elements());
  });
  if (op.dweight)
    with_float_and_sum_types(op.dy.dtype, op.dweight.dtype, [&](auto zero, auto zero_sum) {
      using T = decltype(zero);
      using Sum = decltype(zero_sum);
      launch_rows(stream, "conv2d_backward", conv2d_dweight_kernel<T, Sum>, op.dweight.elements(), kThreads, 0, s,
                  op.dy.as<T>(), op.x.as<T>(), op.dweight.as<Sum>(), op.write_dweight == Write::add);
    });
  if (op.dbias)
    with_float_and_sum_types(op.dy.dtype, op.dbias.dtype, [&](auto zero, auto zero_sum) {
      using T = decltype(zero);
      using Sum = decltype(zero_sum);
      launch_rows(stream, "conv2d_backward", conv2d_dbias_kernel<T, Sum>, op.dbias.elements(), kThreads, 0, s,
                  op.dy.as<T>(), op.dbias.as<Sum>(), op.write_dbias == Write::add);
    });
}

}  // namespace zeepo
