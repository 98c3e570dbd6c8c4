// Attention heads inside wider rows: the q, k or v part of a fused qkv buffer, or a KV cache.
#pragma once

#include "zeepo/device/view.h"

namespace zeepo {

// Element (b, t, h, d) is at data[b·batch_stride + t·row_stride + h·head_dim + d]; strides count elements.
template <class Void>
struct BasicHeads {
  Void* data = nullptr;
  DType dtype = DType::f32;
  std::int64_t batch = 0, rows = 0, heads = 0, head_dim = 0;
  std::int64_t batch_stride = 0, row_stride = 0;

  template <class T>
  auto* as() const {
    if constexpr (std::is_const_v<Void>)
      return static_cast<const T*>(data);
    else
      return static_cast<T*>(data);
  }
  operator BasicHeads<const void>() const requires(!std::is_const_v<Void>) {
    return {data, dtype, batch, rows, heads, head_dim, batch_stride, row_stride};
  }
};

using Heads = BasicHeads<void>;
using ConstHeads = BasicHeads<const void>;

// `heads` heads from column `first_column` on of a (B, T, width) tensor.
template <class Void>
BasicHeads<Void> heads_of(BasicView<Void> x, std::int64_t first_column, std::int64_t heads, std::int64_t head_dim) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  const auto offset = static_cast<std::size_t>(first_column) * size_of(x.dtype);
  auto* data = x.data ? static_cast<Byte*>(x.data) + offset : nullptr;
  return {data, x.dtype, x.shape[0], x.shape[1], heads, head_dim, x.shape[1] * x.shape[2], x.shape[2]};
}

}  // namespace zeepo
