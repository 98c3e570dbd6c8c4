#include <algorithm>

#include "zeepo/kernels/conv.h"
#include "zeepo/kernels/cpu/conv2d_columns.h"
#include "zeepo/kernels/cpu/conv2d_shape.h"
#include "zeepo/kernels/cpu/gemm.h"
#include "zeepo/kernels/cpu/partial_sums.h"
#include "zeepo/kernels/cpu/widen.h"

namespace zeepo {
namespace {

// `n` elements from `offset` on as fp32: where they are, or converted into `room`.
const float* as_floats(ConstView x, std::int64_t offset, std::int64_t n, float* room) {
  if (x.dtype == DType::f32) return x.as<float>() + offset;
  cpu::widen(cpu::at(x.data, x.dtype, offset), x.dtype, n, room);
  return room;
}

// Where to compute fp32 elements that belong at `offset` of y: there, or in `room`, and then narrowed by put_floats.
float* floats_for(View y, std::int64_t offset, float* room) {
  return y.dtype == DType::f32 ? y.as<float>() + offset : room;
}
void put_floats(const float* from, View y, std::int64_t offset, std::int64_t n) {
  if (y.dtype != DType::f32) cpu::narrow(from, n, cpu::at(y.data, y.dtype, offset), y.dtype);
}

// Calls f(group, first image, end of images) for every group, on the pool.
template <class F>
void for_groups(CpuStream& stream, const Conv2dShape& s, const F& f) {
  stream.pool().for_range(s.images, s.images_per_group(),
                          [&](std::int64_t begin, std::int64_t end) { f(begin / s.images_per_group(), begin, end); });
}

}  // namespace

std::int64_t conv2d_scratch_elements(const Shape& x, const Shape& weight, const ConvOptions& options) {
  const Conv2dShape s(x, weight, options);
  return s.weights() + s.groups() * Conv2dScratch::elements(s);
}

void conv2d(CpuStream& stream, ConstView x, ConstView weight, ConstView bias, View y, View scratch,
            const ConvOptions& options) {
  const Conv2dShape s(x.shape, weight.shape, options);
  const float* weights = as_floats(weight, 0, s.weights(), scratch.as<float>());
  for_groups(stream, s, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
    const Conv2dScratch room(scratch.as<float>(), s, group);
    const float* offsets = bias ? as_floats(bias, 0, s.out_channels, room.dbias) : nullptr;
    for (auto image = begin; image < end; ++image) {
      image_to_columns(s, as_floats(x, image * s.in_elements(), s.in_elements(), room.in), room.columns);
      float* out = floats_for(y, image * s.out_elements(), room.out);
      for (std::int64_t o = 0; o < s.out_channels && offsets; ++o)
        std::fill(out + o * s.places(), out + (o + 1) * s.places(), offsets[o]);
      cpu::gemm(s.out_channels, s.places(), s.taps(), {weights, s.taps()}, {room.columns, s.places()},
                offsets ? Write::add : Write::overwrite, out, s.places());
      put_floats(out, y, image * s.out_elements(), s.out_elements());
    }
  });
}

void conv2d_backward(CpuStream& stream, const Conv2dBackward& op, const ConvOptions& options) {
  const Conv2dShape s(op.x.shape, op.weight.shape, options);
  float* scratch = op.scratch.as<float>();
  const float* weights = as_floats(op.weight, 0, s.weights(), scratch);
  for_groups(stream, s, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
    const Conv2dScratch room(scratch, s, group);
    std::fill(room.dweight, room.dweight + s.weights(), 0.0f);
    std::fill(room.dbias, room.dbias + s.out_channels, 0.0f);
    for (auto image = begin; image < end; ++image) {
      const float* dy = as_floats(op.dy, image * s.out_elements(), s.out_elements(), room.out);
      if (op.dbias)
        for (std::int64_t o = 0; o < s.out_channels; ++o)
          for (std::int64_t i = 0; i < s.places(); ++i) room.dbias[o] += dy[o * s.places() + i];
      if (op.dweight) {
        image_to_columns(s, as_floats(op.x, image * s.in_elements(), s.in_elements(), room.in), room.columns);
        cpu::gemm(s.out_channels, s.taps(), s.places(), {dy, s.places()}, {room.columns, s.places(), Transpose::yes},
                  Write::add, room.dweight, s.taps());
      }
      if (op.dx) {
        cpu::gemm(s.taps(), s.places(), s.out_channels, {weights, s.taps(), Transpose::yes}, {dy, s.places()},
                  Write::overwrite, room.columns, s.places());
        float* dx = floats_for(op.dx, image * s.in_elements(), room.in);
        std::fill(dx, dx + s.in_elements(), 0.0f);
        add_columns_to_image(s, room.columns, dx);
        put_floats(dx, op.dx, image * s.in_elements(), s.in_elements());
      }
    }
  });
  const Conv2dScratch first(scratch, s, 0);
  const auto stride = Conv2dScratch::elements(s);
  if (op.dweight) add_partial_sums(stream, first.dweight, s.groups(), stride, op.dweight, op.write_dweight);
  if (op.dbias) add_partial_sums(stream, first.dbias, s.groups(), stride, op.dbias, op.write_dbias);
}

}  // namespace zeepo
