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

}  // namespace zeepo
