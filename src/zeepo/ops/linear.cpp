#include "zeepo/ops/linear.h"

#include <utility>

#include "zeepo/autograd/tape.h"
#include "zeepo/kernels/fp8.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/ops/linear_around.h"
#include "zeepo/ops/linear_parameters.h"
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
  if (layout == WeightLayout::out_in && products == Products::as_stored && in_few_rows(x))
    if (Tensor y = linear_around(x, weight, bias); y.defined()) return y;
  const std::int64_t in = x.shape()[-1], out = linear_width(x, weight, bias, layout);
  Tensor y(x.shape().with_last(out), x.dtype());
  const Transpose transposed = forward_transpose(layout);
  const bool in_fp8 = products == Products::fp8 && in % kFp8Multiple == 0 && out % kFp8Multiple == 0;
  if (in_fp8)
    multiply_in_fp8(x, weight, transposed, y, {.bias = bias.view(), .short_sums = true});
  else
    launch([&](auto& s) { matmul(s, x.view(), weight.view(), y.view(), {.b = transposed, .bias = bias.view()}); });

  if (Tape* tape = Tape::recording({&x, &weight, &bias})) {
    const auto dx = wanted_gradient(x);
    const LinearParameters parameters(*tape, x, weight, bias, layout);
    const auto saved_weight = dx ? tape->save(weight) : Saved();
    tape->record({&y}, [=](std::span<Tensor> dy) {
      if (dx) {
        const Tensor weights = saved_weight();
        const auto to = dx->target();
        const auto b = backward_transpose(layout);
        if (in_fp8 && !dx->is_parameter())
          multiply_in_fp8(dy[0], weights, b, to.tensor, {.write = to.write});
        else
          launch(
              [&](auto& s) { matmul(s, dy[0].view(), weights.view(), to.tensor.view(), {.b = b, .write = to.write}); });
      }
      parameters.add_gradients(dy[0]);
    });
  }
  return y;
}

}  // namespace zeepo
