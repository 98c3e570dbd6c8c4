// The C++ type of a dtype that ranks send.
#pragma once

#include <string_view>
#include <utility>

#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"

namespace zeepo {

// f with a value of the type. Throws Error, which calls it `what`, for a dtype that is no float.
template <class F>
void with_float_type(DType dtype, std::string_view what, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(bf16{});
    case DType::f16: return f(f16{});
    default: throw Error("{} of {}: must be fp32, bf16 or fp16", what, name_of(dtype));
  }
}

}  // namespace zeepo
