// Rows of any float type to fp32 and back (round to nearest even), on the calling thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "zeepo/base/dtype.h"

namespace zeepo::cpu {

void widen(const void* from, DType dtype, std::int64_t n, float* to);
void narrow(const float* from, std::int64_t n, void* to, DType dtype);

// The address of element `offset` of memory that holds `dtype`.
inline const void* at(const void* data, DType dtype, std::int64_t offset) {
  return static_cast<const std::byte*>(data) + offset * static_cast<std::int64_t>(size_of(dtype));
}
inline void* at(void* data, DType dtype, std::int64_t offset) {
  return static_cast<std::byte*>(data) + offset * static_cast<std::int64_t>(size_of(dtype));
}

// A rows × columns block with a row stride, packed into or out of contiguous fp32 rows.
inline void widen_block(const void* from, DType dtype, std::int64_t stride, std::int64_t rows, std::int64_t columns,
                        float* to) {
  for (std::int64_t i = 0; i < rows; ++i) widen(at(from, dtype, i * stride), dtype, columns, to + i * columns);
}
inline void narrow_block(const float* from, std::int64_t rows, std::int64_t columns, void* to, DType dtype,
                         std::int64_t stride) {
  for (std::int64_t i = 0; i < rows; ++i) narrow(from + i * columns, columns, at(to, dtype, i * stride), dtype);
}

}  // namespace zeepo::cpu
