// One pass over flat optimizer state: unscale, clip, step, write back in the training dtype.
//
// The weight's exact fp32 value is kept in one of three ways: `param` is fp32 itself, without a remainder; `param` is
// bf16 and the remainder is int16 (the fp32 bits are param·2^16 + remainder, split with round-half-up); `param` is
// fp16, and in place of a remainder stands the fp32 master. Products and sums use explicit fused multiply-adds, so that
// every backend gives the same bits.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/gradient_norm.h"
#include "zeepo/kernels/moments.h"

namespace zeepo {

struct Weights {
  View param, remainder;
};
// Exact fp32 weights in and out of that form.
void write_master(CpuStream&, ConstView fp32, Weights to);
void write_master(CudaStream&, ConstView fp32, Weights to);
void write_master(DryStream&, ConstView fp32, Weights to);
void read_master(CpuStream&, Weights from, View fp32);
void read_master(CudaStream&, Weights from, View fp32);
void read_master(DryStream&, Weights from, View fp32);

struct AdamOptions {
  float lr, beta1, beta2, eps, weight_decay;
  float correction1, correction2;  // 1 − beta^t, in fp64 from these fp32 betas, then rounded
  bool decoupled;                  // AdamW: p −= lr·wd·p; else the gradient gets wd·p
};
// m = β1·m + (1−β1)·g,  v = β2·v + (1−β2)·g²,  p −= lr · (m/c1) / (sqrt(v/c2) + eps).   The weight is stepped by m and
// v as computed, before they are rounded to what is kept of them. m and v are kept in the same dtype. Changes nothing
// if control says skip.
void adam(CpuStream&, Weights weights, ConstView grad, const Moment& m, const Moment& v, ConstView control,
          const AdamOptions&, const Chance& = {});
void adam(CudaStream&, Weights weights, ConstView grad, const Moment& m, const Moment& v, ConstView control,
          const AdamOptions&, const Chance& = {});
void adam(DryStream&, Weights weights, ConstView grad, const Moment& m, const Moment& v, ConstView control,
          const AdamOptions&, const Chance& = {});

struct SgdOptions {
  float lr, momentum, weight_decay;
  bool first_step;  // the momentum starts as the gradient itself, as in PyTorch
};
// b = momentum·b + g,  p −= lr·b.   momentum == 0: `b` may be empty. `b` is fp32 or bf16.
void sgd(CpuStream&, Weights weights, ConstView grad, View b, ConstView control, const SgdOptions&, const Chance& = {});
void sgd(CudaStream&, Weights weights, ConstView grad, View b, ConstView control, const SgdOptions&,
         const Chance& = {});
void sgd(DryStream&, Weights weights, ConstView grad, View b, ConstView control, const SgdOptions&, const Chance& = {});

}  // namespace zeepo
