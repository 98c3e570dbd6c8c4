#include "zeepo/ops/conv.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options) {
  const Shape &image = x.shape(), &kernel = weight.shape();
  if (image.rank() != 4 || kernel.rank() != 4 || image[1] != kernel[1] || options.stride < 1 || options.padding < 0 ||
      image[2] + 2 * options.padding < kernel[2] || image[3] + 2 * options.padding < kernel[3] ||
      (bias.defined() && bias.elements() != kernel[0]))
    throw Error("conv2d: x {}, weight {}, stride {}, padding {} do not fit", image.str(), kernel.str(), options.stride,
                options.padding);
  const auto extent = [&](int i) { return (image[i] + 2 * options.padding - kernel[i]) / options.stride + 1; };
  Tensor y({image[0], kernel[0], extent(2), extent(3)}, x.dtype());
  const auto scratch = [image, kernel, options] {
    return Tensor({conv2d_scratch_elements(image, kernel, options)}, DType::f32, Kind::working);
  };
  const Tensor columns = scratch();
  launch([&](auto& s) { conv2d(s, x.view(), weight.view(), bias.view(), y.view(), columns.view(), options); });
  if (Tape* tape = Tape::recording({&x, &weight, &bias})) {
    tape->record({&y}, [scratch, options, dx = wanted_gradient(x), dweight = wanted_gradient(weight),
                        dbias = wanted_gradient(bias), saved_x = tape->save(x),
                        saved_weight = tape->save(weight)](std::span<Tensor> dy) {
      const Tensor input = saved_x(), weights = saved_weight(), room = scratch();
      const Tensor dinput = dx ? Tensor(input.shape(), input.dtype()) : Tensor();
      const auto weight_to = target_of(dweight), bias_to = target_of(dbias);
      launch([&](auto& s) {
        conv2d_backward(s,
                        {input.view(), weights.view(), dy[0].view(), dinput.view(), weight_to.tensor.view(),
                         bias_to.tensor.view(), room.view(), weight_to.write, bias_to.write},
                        options);
      });
      if (dx) dx->add(dinput);
    });
  }
  return y;
}

Tensor max_pool2d(const Tensor& x, std::int64_t size) {
  const Shape& image = x.shape();
  if (image.rank() != 4 || size < 1 || image[2] < size || image[3] < size)
    throw Error("max_pool2d: x {}, windows of {} x {}", image.str(), size, size);
  Tensor y({image[0], image[1], image[2] / size, image[3] / size}, x.dtype());
  const Tensor indices(y.shape(), DType::i32);
  launch([&](auto& s) { max_pool2d(s, x.view(), y.view(), indices.view(), size); });
  if (Tape* tape = Tape::recording({&x})) {
    tape->record({&y}, [image, dx = wanted_gradient(x), saved = tape->save(indices)](std::span<Tensor> dy) {
      const Tensor places = saved(), d(image, dy[0].dtype());
      launch([&](auto& s) { max_pool2d_backward(s, dy[0].view(), places.view(), d.view()); });
      dx->add(d);
    });
  }
  return y;
}

}  // namespace zeepo
