// Rotary position embedding, Hugging Face's layout: element d of a head turns together with element d + head_dim/2.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/kernels/heads.h"

namespace zeepo {

enum class Turn { forward, backward };

// Rotates x in place by the angle of its position, first_position + t.   cosines, sines: fp32 (positions, head_dim/2)
// Turn::backward rotates the other way: the inverse, and the gradient.
void rotate(CpuStream&, Heads x, ConstView cosines, ConstView sines, std::int64_t first_position, Turn turn);
void rotate(CudaStream&, Heads x, ConstView cosines, ConstView sines, std::int64_t first_position, Turn turn);
void rotate(DryStream&, Heads x, ConstView cosines, ConstView sines, std::int64_t first_position, Turn turn);

}  // namespace zeepo
