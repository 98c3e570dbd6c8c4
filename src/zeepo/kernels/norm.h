// Layer and RMS normalisation over the last extent, statistics in fp32.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"
#include "zeepo/kernels/heads.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {

// y = (x − mean) · rstd · weight + bias.   x, y: (..., n)   weight, bias: (n); no bias: empty view.
// With `delta`, x + delta is written to `sum` and normalised instead: residual add and norm in one pass.
// mean and rstd: fp32 (rows), kept for the backward pass.
struct LayerNormForward {
  ConstView x, delta, weight, bias;
  float eps;
  View sum, y, mean, rstd;
};
void layer_norm(CpuStream&, const LayerNormForward&);
void layer_norm(CudaStream&, const LayerNormForward&);
void layer_norm(DryStream&, const LayerNormForward&);

// `x` is what was normalised (the sum, with delta). dx is overwritten or added to; so are dweight and dbias, here and
// below of the values' type or fp32.
struct LayerNormBackward {
  ConstView dy, x, weight, mean, rstd;
  View dx, dweight, dbias;
  Write write_dx, write_dweight, write_dbias;
};
void layer_norm_backward(CpuStream&, const LayerNormBackward&);
void layer_norm_backward(CudaStream&, const LayerNormBackward&);
void layer_norm_backward(DryStream&, const LayerNormBackward&);

// y = x · rstd · weight, rstd = 1/sqrt(mean(x²) + eps); otherwise as above.
struct RmsNormForward {
  ConstView x, delta, weight;
  float eps;
  View sum, y, rstd;
};
void rms_norm(CpuStream&, const RmsNormForward&);
void rms_norm(CudaStream&, const RmsNormForward&);
void rms_norm(DryStream&, const RmsNormForward&);

struct RmsNormBackward {
  ConstView dy, x, weight, rstd;
  View dx, dweight;
  Write write_dx, write_dweight;
};
void rms_norm_backward(CpuStream&, const RmsNormBackward&);
void rms_norm_backward(CudaStream&, const RmsNormBackward&);
void rms_norm_backward(DryStream&, const RmsNormBackward&);

// RMS norm of every head of every row by itself (Qwen 3's q and k norms).   weight: (head_dim)   rstd: fp32 (rows,
// heads)
void rms_norm_heads(CpuStream&, ConstHeads x, ConstView weight, float eps, Heads y, View rstd);
void rms_norm_heads(CudaStream&, ConstHeads x, ConstView weight, float eps, Heads y, View rstd);
void rms_norm_heads(DryStream&, ConstHeads x, ConstView weight, float eps, Heads y, View rstd);
// dx is overwritten.
void rms_norm_heads_backward(CpuStream&, ConstHeads dy, ConstHeads x, ConstView weight, ConstView rstd, Heads dx,
                             View dweight, Write write_dweight);
void rms_norm_heads_backward(CudaStream&, ConstHeads dy, ConstHeads x, ConstView weight, ConstView rstd, Heads dx,
                             View dweight, Write write_dweight);
void rms_norm_heads_backward(DryStream&, ConstHeads dy, ConstHeads x, ConstView weight, ConstView rstd, Heads dx,
                             View dweight, Write write_dweight);

}  // namespace zeepo
