#include "zeepo/ops/loss.h"

#include <algorithm>

#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Depends on shapes and the kind of device only; a dry pass takes what its device will.
std::int64_t rows_at_a_time(std::int64_t rows, std::int64_t vocab) {
  const Backend backend = Device::current().compute.plays();
  const std::int64_t most = std::max<std::int64_t>(1, logits_at_a_time(backend) / vocab);
  const std::int64_t pieces = (rows + most - 1) / most, even = (rows + pieces - 1) / pieces;
  const std::int64_t tile = rows_of_logits(backend), whole_tiles = (even + tile - 1) / tile * tile;
  return whole_tiles <= most ? std::min(whole_tiles, rows) : even;
}

Tensor rows_of(const Tensor& x, std::int64_t begin, std::int64_t rows, std::int64_t width) {
  return x.part(begin * width, {rows, width});
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets) {
  const std::int64_t rows = logits.shape().rows();
  if (targets.dtype() != DType::i32 || targets.elements() != rows)
    throw Error("cross_entropy: {} targets for logits {}", targets.elements(), logits.shape().str());
  const Tensor losses({rows});
  Tensor loss(Shape{1});
  const float mean = 1.0f / static_cast<float>(rows);
  launch([&](auto& s) {
    cross_entropy(s, logits.view(), targets.view(), losses.view(), View{}, 1);
    sum(s, losses.view(), mean, loss.view(), false);
  });
  if (Tape* tape = Tape::recording({&logits})) {
    tape->record({&loss}, [=, dlogits = wanted_gradient(logits), saved_logits = tape->save(logits),
                           saved_targets = tape->save(targets)](std::span<Tensor> dloss) {
      const Tensor x = saved_logits(), y = saved_targets(), d(x.shape(), x.dtype()), unused({rows});
      launch([&](auto& s) {
        cross_entropy(s, x.view(), y.view(), unused.view(), d.view(), mean);
        scale_by(s, d.view(), dloss[0].view(), d.view());
      });
      dlogits->add(d);
    });
  }
  return loss;
}

Tensor head_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& targets, std::optional<float> divisor) {
  const std::int64_t rows = x.shape().rows(), width = x.shape()[-1], vocab = weight.shape()[0];
  if (weight.shape() != Shape{vocab, width} || targets.dtype() != DType::i32 || targets.elements() != rows)
    throw Error("head_cross_entropy: x {}, weight {}, {} targets", x.shape().str(), weight.shape().str(),
                targets.elements());
  Tape* tape = Tape::recording({&x, &weight});
  const auto dx = tape ? wanted_gradient(x) : nullptr, dweight = tape ? wanted_gradient(weight) : nullptr;
  const Tensor dx_value = dx ? Tensor(x.shape(), x.dtype()) : Tensor();
  const float mean = 1.0f / divisor.value_or(static_cast<float>(rows));
  const float grad_scale = tape ? mean * tape->loss_scale() : 0;

  const std::int64_t piece = rows_at_a_time(rows, vocab);
  const Tensor logits({piece, vocab}, x.dtype(), Kind::working), losses({rows});
  for (std::int64_t begin = 0; begin < rows; begin += piece) {
    const std::int64_t n = std::min(piece, rows - begin);
    const Tensor x_part = rows_of(x, begin, n, width), logits_part = rows_of(logits, 0, n, vocab);
    launch([&](auto& s) {
      matmul(s, x_part.view(), weight.view(), logits_part.view(), {.b = Transpose::yes});
      cross_entropy(s, logits_part.view(), targets.part(begin, {n}).view(), losses.part(begin, {n}).view(),
                    tape ? logits_part.view() : View{}, grad_scale);
      if (dx) matmul(s, logits_part.view(), weight.view(), rows_of(dx_value, begin, n, width).view());
    });
    if (dweight) {
      const auto to = dweight->target();
      launch([&](auto& s) {
        matmul(s, logits_part.view(), x_part.view(), to.tensor.view(), {.a = Transpose::yes, .write = to.write});
      });
    }
  }
  Tensor loss(Shape{1});
  launch([&](auto& s) { sum(s, losses.view(), mean, loss.view(), false); });
  if (tape) {
    tape->record({&loss}, [dx, saved_dx = dx ? tape->save(dx_value) : Saved()](std::span<Tensor>) {
      if (dx) dx->add(saved_dx());
    });
    tape->require_root(loss);
  }
  return loss;
}

}  // namespace zeepo
