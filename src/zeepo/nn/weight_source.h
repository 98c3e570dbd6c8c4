// Weights by the names that files know them by, in pieces: how they come into a model without a copy of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "zeepo/nn/parameter.h"

namespace zeepo {

// A named weight: part of a parameter, or cut over the tiles of a layer; `parameter` is then any of them.
struct WeightSlice {
  std::string name;
  Shape shape;
  const Parameter* parameter;
};

// Fills `out` with elements [begin, begin + out.size()) of a named weight, in fp32.
using WeightSource = std::function<void(const WeightSlice& slice, std::int64_t begin, std::span<float> out)>;

}  // namespace zeepo
