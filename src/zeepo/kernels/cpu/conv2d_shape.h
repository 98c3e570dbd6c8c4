// How a convolution is cut: the images into at most 16 groups, by their number only. A task works through its group
// image by image with its own piece of scratch, so scratch is bounded by the groups and not by the batch; the groups'
// sums of weight gradients are added in order.
#pragma once

#include <algorithm>
#include <cstdint>

#include "zeepo/kernels/conv.h"

namespace zeepo {

struct Conv2dShape {
  std::int64_t images, in_channels, height, width;
  std::int64_t out_channels, kernel_height, kernel_width;
  std::int64_t stride, padding, out_height, out_width;

  Conv2dShape(const Shape& x, const Shape& weight, const ConvOptions& options)
      : images(x[0]),
        in_channels(x[1]),
        height(x[2]),
        width(x[3]),
        out_channels(weight[0]),
        kernel_height(weight[2]),
        kernel_width(weight[3]),
        stride(options.stride),
        padding(options.padding),
        out_height((height + 2 * padding - kernel_height) / stride + 1),
        out_width((width + 2 * padding - kernel_width) / stride + 1) {}

  std::int64_t in_elements() const { return in_channels * height * width; }         // of one image
  std::int64_t out_elements() const { return out_channels * places(); }             // of one image
  std::int64_t places() const { return out_height * out_width; }                    // where the kernel is applied
  std::int64_t taps() const { return in_channels * kernel_height * kernel_width; }  // products at each place
  std::int64_t weights() const { return out_channels * taps(); }

  std::int64_t images_per_group() const { return std::max<std::int64_t>(1, (images + 15) / 16); }
  std::int64_t groups() const { return (images + images_per_group() - 1) / images_per_group(); }
};

// One group's piece of scratch, fp32; the weights in fp32 stand once, before the pieces.
struct Conv2dScratch {
  float* in;       // (in_channels, height, width)
  float* out;      // (out_channels, places)
  float* columns;  // (taps, places)
  float* dweight;  // (out_channels, taps)
  float* dbias;    // (out_channels)

  static std::int64_t elements(const Conv2dShape& s) {
    return s.in_elements() + s.out_elements() + s.taps() * s.places() + s.weights() + s.out_channels;
  }
  Conv2dScratch(float* scratch, const Conv2dShape& s, std::int64_t group) {
    in = scratch + s.weights() + group * elements(s);
    out = in + s.in_elements();
    columns = out + s.out_elements();
    dweight = columns + s.taps() * s.places();
    dbias = dweight + s.weights();
  }
};

}  // namespace zeepo
