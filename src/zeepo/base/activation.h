#pragma once

namespace zeepo {

// silu is x·sigmoid(x); gelu_tanh is the tanh form of gelu, gelu_erf the exact one.
enum class Activation { gelu_tanh, gelu_erf, relu, silu };

}  // namespace zeepo
