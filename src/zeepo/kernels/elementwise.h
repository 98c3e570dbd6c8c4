// Arithmetic element by element, computed in fp32. Outputs may be the same memory as an input of the same size.
#pragma once

#include "zeepo/base/activation.h"
#include "zeepo/base/rng.h"
#include "zeepo/device/stream.h"
#include "zeepo/device/view.h"

namespace zeepo {

void fill(CpuStream&, View y, float value);
void fill(CudaStream&, View y, float value);
void fill(DryStream&, View y, float value);
// y = x, converted between fp32, bf16 and fp16 (round to nearest even).
void copy(CpuStream&, ConstView x, View y);
void copy(CudaStream&, ConstView x, View y);
void copy(DryStream&, ConstView x, View y);
// y = a + b; a and y are of one type, b of any.
void add(CpuStream&, ConstView a, ConstView b, View y);
void add(CudaStream&, ConstView a, ConstView b, View y);
void add(DryStream&, ConstView a, ConstView b, View y);
// y = a + b, rounded to b's type; a and y are fp32.
void add_rounded(CpuStream&, ConstView a, ConstView b, View y);
void add_rounded(CudaStream&, ConstView a, ConstView b, View y);
void add_rounded(DryStream&, ConstView a, ConstView b, View y);
// y = factor · x
void scale(CpuStream&, ConstView x, float factor, View y);
void scale(CudaStream&, ConstView x, float factor, View y);
void scale(DryStream&, ConstView x, float factor, View y);
// y = factor[0] · x, the factor (fp32) read from the device.
void scale_by(CpuStream&, ConstView x, ConstView factor, View y);
void scale_by(CudaStream&, ConstView x, ConstView factor, View y);
void scale_by(DryStream&, ConstView x, ConstView factor, View y);

void activate(CpuStream&, Activation, ConstView x, View y);
void activate(CudaStream&, Activation, ConstView x, View y);
void activate(DryStream&, Activation, ConstView x, View y);
// dx = dy · f'(x)
void activate_backward(CpuStream&, Activation, ConstView x, ConstView dy, View dx);
void activate_backward(CudaStream&, Activation, ConstView x, ConstView dy, View dx);
void activate_backward(DryStream&, Activation, ConstView x, ConstView dy, View dx);

// y = silu(gate) · up.   x: (..., 2F), the gate first   y: (..., F)
void swiglu(CpuStream&, ConstView x, View y);
void swiglu(CudaStream&, ConstView x, View y);
void swiglu(DryStream&, ConstView x, View y);
void swiglu_backward(CpuStream&, ConstView x, ConstView dy, View dx);
void swiglu_backward(CudaStream&, ConstView x, ConstView dy, View dx);
void swiglu_backward(DryStream&, ConstView x, ConstView dy, View dx);

// y = x / (1 − p) where uniform(key, i) >= p, else 0; i is the element's index. Its own backward, on dy.
void dropout(CpuStream&, ConstView x, float p, RngKey key, View y);
void dropout(CudaStream&, ConstView x, float p, RngKey key, View y);
void dropout(DryStream&, ConstView x, float p, RngKey key, View y);

}  // namespace zeepo
