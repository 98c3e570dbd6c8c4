// Activation checkpointing: keep the input of a piece of a model instead of everything inside it, and run it again in
// the backward pass.
#pragma once

#include <functional>

#include "zeepo/tensor/tensor.h"

namespace zeepo {

// f(x), recorded as one entry. f must give the same bits when run again; random ops inside it do (see random_state.h).
Tensor checkpoint(const Tensor& x, const std::function<Tensor(const Tensor&)>& f);

}  // namespace zeepo
