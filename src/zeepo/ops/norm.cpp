#include "zeepo/ops/norm.h"

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/norm.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

enum class NormKind { layer, rms };

// Both norms, with and without `delta`: they differ in the statistics they keep.
AddNorm add_norm(NormKind kind, const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias,
                 float eps) {
  const std::int64_t n = x.shape()[-1];
  if (weight.elements() != n || (bias.defined() && bias.elements() != n))
    throw Error("norm: x {} does not fit the weight {}", x.shape().str(), weight.shape().str());
  if (delta.defined() && delta.shape() != x.shape())
    throw Error("norm: x {} and what is added to it, {}", x.shape().str(), delta.shape().str());

  const bool layer = kind == NormKind::layer;
  const Shape rows{x.shape().rows()};
  Tensor sum = delta.defined() ? Tensor(x.shape(), x.dtype()) : x;
  Tensor y(x.shape(), x.dtype());
  const Tensor rstd(rows), mean = layer ? Tensor(rows) : Tensor();
  launch([&](auto& s) {
    const View sum_view = delta.defined() ? sum.view() : View{};
    if (layer)
      layer_norm(
          s, {x.view(), delta.view(), weight.view(), bias.view(), eps, sum_view, y.view(), mean.view(), rstd.view()});
    else
      rms_norm(s, {x.view(), delta.view(), weight.view(), eps, sum_view, y.view(), rstd.view()});
  });

  Tape* tape = Tape::recording({&x, &delta, &weight, &bias});
  if (!tape) return {sum, y};
  // Sends on the gradient of y, and that of the sum where it has other uses (dsum is undefined where not).
  const auto backward = [layer, dx = wanted_gradient(x), ddelta = wanted_gradient(delta),
                         dweight = wanted_gradient(weight), dbias = wanted_gradient(bias), saved_sum = tape->save(sum),
                         saved_weight = tape->save(weight), saved_mean = layer ? tape->save(mean) : Saved(),
                         saved_rstd = tape->save(rstd)](const Tensor& dy, Tensor dsum) {
    if (dy.defined()) {
      const bool in_place = dx && !dx->is_parameter() && !ddelta && !dsum.defined();
      Gradient::Target to{};
      if (dsum.defined())
        to = {writable(std::move(dsum)), Write::add};
      else if (in_place)
        to = dx->target();
      else
        to = {Tensor(dy.shape(), dy.dtype()), Write::overwrite};
      const auto weight_to = target_of(dweight), bias_to = target_of(dbias);
      const Tensor input = saved_sum(), weights = saved_weight(), rstds = saved_rstd();
      const Tensor means = layer ? saved_mean() : Tensor();
      launch([&](auto& s) {
        if (layer)
          layer_norm_backward(
              s, {dy.view(), input.view(), weights.view(), means.view(), rstds.view(), to.tensor.view(),
                  weight_to.tensor.view(), bias_to.tensor.view(), to.write, weight_to.write, bias_to.write});
        else
          rms_norm_backward(s, {dy.view(), input.view(), weights.view(), rstds.view(), to.tensor.view(),
                                weight_to.tensor.view(), to.write, weight_to.write});
      });
      if (in_place) return;
      dsum = to.tensor;
    }
    if (dx) dx->add(dsum);
    if (ddelta) ddelta->add(dsum);
  };
  if (delta.defined())
    tape->record({&sum, &y}, [backward](std::span<Tensor> d) { backward(d[1], std::move(d[0])); });
  else
    tape->record({&y}, [backward](std::span<Tensor> d) { backward(d[0], {}); });
  return {sum, y};
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps) {
  return add_norm(NormKind::layer, x, {}, weight, bias, eps).normalised;
}

Tensor rms_norm(const Tensor& x, const Tensor& weight, float eps) {
  return add_norm(NormKind::rms, x, {}, weight, {}, eps).normalised;
}

AddNorm add_layer_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, const Tensor& bias, float eps) {
  return add_norm(NormKind::layer, x, delta, weight, bias, eps);
}

AddNorm add_rms_norm(const Tensor& x, const Tensor& delta, const Tensor& weight, float eps) {
  return add_norm(NormKind::rms, x, delta, weight, {}, eps);
}

}  // namespace zeepo
