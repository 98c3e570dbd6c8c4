// Test data of any float type, seen by kernels as a view and by references as doubles.
#pragma once

#include <cstring>
#include <vector>

#include "zeepo/base/rng.h"
#include "zeepo/device/view.h"

namespace zeepo {

inline constexpr DType kFloatTypes[] = {DType::f32, DType::bf16, DType::f16};
// What is summed up, and what in.
struct SummedTypes {
  DType values, sums;
};
inline constexpr SummedTypes kSummedTypes[] = {{DType::f32, DType::f32},
                                               {DType::bf16, DType::bf16},
                                               {DType::f16, DType::f16},
                                               {DType::bf16, DType::f32},
                                               {DType::f16, DType::f32}};

// The relative size of one rounding.
inline double rounding_of(DType dtype) {
  return dtype == DType::f32 ? 0x1p-24 : dtype == DType::bf16 ? 0x1p-8 : 0x1p-11;
}

class TypedValues {
 public:
  TypedValues(DType dtype, Shape shape)
      : dtype_(dtype), shape_(shape), bytes_(static_cast<std::size_t>(shape.elements()) * size_of(dtype)) {}

  static TypedValues random(DType dtype, Shape shape, std::uint64_t seed, float deviation = 1) {
    TypedValues values(dtype, shape);
    for (std::int64_t i = 0; i < shape.elements(); ++i)
      values.set(i, deviation * normal({seed}, static_cast<std::uint64_t>(i)));
    return values;
  }

  View view() { return {bytes_.data(), dtype_, shape_}; }
  ConstView view() const { return {bytes_.data(), dtype_, shape_}; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::int64_t elements() const { return shape_.elements(); }

  double operator[](std::int64_t i) const {
    if (dtype_ == DType::f32) return view().as<float>()[i];
    return dtype_ == DType::bf16 ? to_float(view().as<bf16>()[i]) : to_float(view().as<f16>()[i]);
  }
  void set(std::int64_t i, float x) {
    if (dtype_ == DType::f32) view().as<float>()[i] = x;
    if (dtype_ == DType::bf16) view().as<bf16>()[i] = from_float<bf16>(x);
    if (dtype_ == DType::f16) view().as<f16>()[i] = from_float<f16>(x);
  }

 private:
  DType dtype_;
  Shape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace zeepo
