// Elements in memory that somebody else owns: what kernels and collectives work on. Contiguous, outermost extent first.
#pragma once

#include <cstddef>
#include <type_traits>

#include "zeepo/base/dtype.h"
#include "zeepo/base/shape.h"

namespace zeepo {

template <class Void>
struct BasicView {
  Void* data = nullptr;
  DType dtype = DType::f32;
  Shape shape;

  explicit operator bool() const { return data != nullptr; }
  std::int64_t elements() const { return shape.elements(); }
  std::size_t bytes() const { return static_cast<std::size_t>(elements()) * size_of(dtype); }
  template <class T>
  auto* as() const {
    if constexpr (std::is_const_v<Void>)
      return static_cast<const T*>(data);
    else
      return static_cast<T*>(data);
  }
  operator BasicView<const void>() const requires(!std::is_const_v<Void>) { return {data, dtype, shape}; }
};

using View = BasicView<void>;
using ConstView = BasicView<const void>;

}  // namespace zeepo
