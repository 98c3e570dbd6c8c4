#include "zeepo/base/dtype.h"
#include "zeepo/base/error.h"

namespace zeepo::cuda {

[[noreturn]] void throw_not_a_float(DType dtype);
void throw_not_a_float(DType dtype) {
  throw Error("{} elements: the kernel computes on fp32, bf16 and fp16", name_of(dtype));
}

}  // namespace zeepo::cuda
