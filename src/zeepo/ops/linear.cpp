#include "zeepo/ops/linear.h"

#include <utility>

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/fp8.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// c = a b or a bᵀ with both operands quantised on the way. For as long as the call they take working memory.
void multiply_in_fp8(const Tensor& a, const Tensor& b, Transpose transpose_b, const Tensor& c,
                     const Fp8MatmulOptions& options) {
  const auto quantised = [](const Tensor& x, Transpose transpose) {
    const std::int64_t rows = x.shape().rows(), columns = x.shape()[-1];
    const Shape pairs = transpose == Transpose::yes ? Shape{columns, rows / 2} : Shape{rows, columns / 2};
    const Tensor values(pairs, DType::i16, Kind::working), factor({2}, DType::f32, Kind::working);
    launch([&](auto& s) { quantise(s, x.view(), transpose, {values.view(), factor.view()}); });
    return std::pair(values, factor);
  };
  const auto left = quantised(a, Transpose::no);
  const auto right = quantised(b, transpose_b == Transpose::yes ? Transpose::no : Transpose::yes);
  launch([&](auto& s) {
    matmul_fp8(s, {left.first.view(), left.second.view()}, {right.first.view(), right.second.view()}, c.view(),
               options);
  });
}

}  // namespace

Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias, WeightLayout layout, Products products) {
  const bool out_in = layout == WeightLayout::out_in;
  const std::int64_t in = weight.shape()[out_in ? 1 : 0], out = weight.shape()[out_in ? 0 : 1];
  if (weight.shape().rank() != 2 || x.shape()[-1] != in)
    throw Error("linear: x {} does not fit the weight {}", x.shape().str(), weight.shape().str());
  if (bias.defined() && bias.elements() != out)
    throw Error("linear: bias {} does not fit the weight {}", bias.shape().str(), weight.shape().str());

  Tensor y(x.shape().with_last(out), x.dtype());
  const auto transposed = out_in ? Transpose::yes : Transpose::no;
  const bool in_fp8 = products == Products::fp8 && in % kFp8Multiple == 0 && out % kFp8Multiple == 0;
  if (in_fp8)
    multiply_in_fp8(x, weight, transposed, y, {.bias = bias.view(), .short_sums = true});
  else
    launch([&](auto& s) { matmul(s, x.view(), weight.view(), y.view(), {.b = transposed, .bias = bias.view()}); });

  if (Tape* tape = Tape::recording({&x, &weight, &bias})) {
    const auto dx = wanted_gradient(x), dweight = wanted_gradient(weight), dbias = wanted_gradient(bias);
    const auto saved_x = dweight ? tape->save(x) : Saved();
    const auto saved_weight = dx ? tape->save(weight) : Saved();
    tape->record({&y}, [=](std::span<Tensor> dy) {
      if (dx) {
        const auto to = dx->target();
        const auto b = out_in ? Transpose::no : Transpose::yes;
        if (in_fp8)
          multiply_in_fp8(dy[0], saved_weight(), b, to.tensor, {.write = to.write});
        else
          launch([&](auto& s) {
            matmul(s, dy[0].view(), saved_weight().view(), to.tensor.view(), {.b = b, .write = to.write});
          });
      }
      if (dweight) {
        const auto to = dweight->target();
        const Tensor input = saved_x();
        const Tensor &a = out_in ? dy[0] : input, &b = out_in ? input : dy[0];
        launch([&](auto& s) {
          matmul(s, a.view(), b.view(), to.tensor.view(), {.a = Transpose::yes, .write = to.write});
        });
      }
      if (dbias) {
        const auto to = dbias->target();
        launch([&](auto& s) { sum_rows(s, dy[0].view(), to.tensor.view(), to.write); });
      }
    });
  }
  return y;
}

}  // namespace zeepo
