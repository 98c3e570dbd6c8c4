// What an Adam step multiplies with, each rounded once from fp64, so that every backend starts from the same numbers.
#pragma once

#include <cmath>

#include "zeepo/kernels/optimizer.h"

namespace zeepo {

struct AdamFactors {
  float beta1, beta2, rest1, rest2;  // rest = 1 − beta
  float step, root, eps, decay;
  bool decoupled;
};

inline AdamFactors adam_factors(const AdamOptions& o) {
  const double lr = o.lr, decay = o.weight_decay;
  return {
      .beta1 = o.beta1,
      .beta2 = o.beta2,
      .rest1 = static_cast<float>(1.0 - double{o.beta1}),
      .rest2 = static_cast<float>(1.0 - double{o.beta2}),
      .step = static_cast<float>(lr / double{o.correction1}),
      .root = static_cast<float>(1.0 / std::sqrt(double{o.correction2})),
      .eps = o.eps,
      .decay = static_cast<float>(o.decoupled ? lr * decay : decay),
      .decoupled = o.decoupled,
  };
}

}  // namespace zeepo
