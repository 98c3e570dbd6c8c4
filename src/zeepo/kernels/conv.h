// Convolution and pooling over images, (N, C, H, W).
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {

struct ConvOptions {
  std::int64_t stride = 1, padding = 0;
};

// y[n][o] = sum over c of x[n][c] ⋆ weight[o][c] + bias[o].   weight: (O, C, Kh, Kw)   bias: (O) or empty
// y: (N, O, (H + 2·padding − Kh)/stride + 1, ...). `scratch`: fp32, at least conv2d_scratch_elements().
void conv2d(CpuStream&, ConstView x, ConstView weight, ConstView bias, View y, View scratch, const ConvOptions&);
void conv2d(CudaStream&, ConstView x, ConstView weight, ConstView bias, View y, View scratch, const ConvOptions&);
void conv2d(DryStream&, ConstView x, ConstView weight, ConstView bias, View y, View scratch, const ConvOptions&);
struct Conv2dBackward {
  ConstView x, weight, dy;
  // dx may be empty: not wanted; it is overwritten. dweight and dbias are of the values' type, or fp32.
  View dx, dweight, dbias, scratch;
  Write write_dweight, write_dbias;
};
void conv2d_backward(CpuStream&, const Conv2dBackward&, const ConvOptions&);
void conv2d_backward(CudaStream&, const Conv2dBackward&, const ConvOptions&);
void conv2d_backward(DryStream&, const Conv2dBackward&, const ConvOptions&);
std::int64_t conv2d_scratch_elements(const Shape& x, const Shape& weight, const ConvOptions&);

// Windows of size × size, stride = size; H and W are cut off below. indices: int32, the place of each maximum in its
// (H, W) plane, for the backward pass.
void max_pool2d(CpuStream&, ConstView x, View y, View indices, std::int64_t size);
void max_pool2d(CudaStream&, ConstView x, View y, View indices, std::int64_t size);
void max_pool2d(DryStream&, ConstView x, View y, View indices, std::int64_t size);
// dx is overwritten.
void max_pool2d_backward(CpuStream&, ConstView dy, ConstView indices, View dx);
void max_pool2d_backward(CudaStream&, ConstView dy, ConstView indices, View dx);
void max_pool2d_backward(DryStream&, ConstView dy, ConstView indices, View dx);

}  // namespace zeepo
