// From a DType to a C++ type: with_float_type(dtype, f) calls f with a zero of float, bf16 or f16.
#pragma once

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"

namespace zeepo {

template <class F>
void with_float_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    case DType::i32:
    case DType::i16:
    case DType::u8: break;
  }
  throw Error("kernel: {} elements where fp32, bf16 or fp16 are needed", name_of(dtype));
}

// The same for what is summed up: f gets a zero of `dtype` and one of `sums`, which is that or fp32.
template <class F>
void with_float_and_sum_types(DType dtype, DType sums, const F& f) {
  if (sums != dtype && sums != DType::f32)
    throw Error("kernel: sums of {} elements in {}: must be the same type, or fp32", name_of(dtype), name_of(sums));
  with_float_type(dtype, [&](auto zero) {
    if (sums == DType::f32)
      f(zero, float{});
    else
      f(zero, zero);
  });
}

}  // namespace zeepo
