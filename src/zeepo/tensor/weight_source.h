// Weights by the names that files know them by, in pieces: how they come into a model without a copy of it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "zeepo/base/shape.h"

namespace zeepo {

// How a fresh weight is filled. `scale` is the deviation of normal, the bound of uniform.
struct Init {
  enum class Kind { zeros, ones, normal, uniform } kind = Kind::zeros;
  float scale = 0;

  static Init zeros() { return {}; }
  static Init ones() { return {Kind::ones, 0}; }
  static Init normal(float deviation) { return {Kind::normal, deviation}; }
  static Init uniform(float bound) { return {Kind::uniform, bound}; }
};

// A named weight: a parameter, a part of one, or cut over the tiles of a layer.
struct WeightSlice {
  std::string name;
  Shape shape;
  Init init = {};
};

// Fills `out` with elements [begin, begin + out.size()) of a named weight, in fp32.
using WeightSource = std::function<void(const WeightSlice& slice, std::int64_t begin, std::span<float> out)>;
// The same of a moment of the optimizer, by number.
using MomentSource =
    std::function<void(std::size_t moment, const WeightSlice& slice, std::int64_t begin, std::span<float> out)>;

}  // namespace zeepo
