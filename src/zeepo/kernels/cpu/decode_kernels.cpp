// What the CPU has of the kernels for one new position at a time: there single operations are as fast.
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/decode_attention.h"
#include "zeepo/kernels/embed_codes.h"
#include "zeepo/kernels/few_row_product.h"
#include "zeepo/kernels/most_likely.h"

namespace zeepo {

bool takes(CpuStream&, const FewRowProduct&) { return false; }
void multiply(CpuStream&, const FewRowProduct&) { throw Error("a product of few rows in one kernel: not on a CPU"); }
bool takes(CpuStream&, const DecodeAttention&) { return false; }
void attend(CpuStream&, const DecodeAttention&) {
  throw Error("attention of one position in one kernel: not on a CPU");
}

void most_likely(CpuStream&, ConstView logits, View ids) {
  const std::int64_t n = logits.shape[-1];
  with_float_type(logits.dtype, [&](auto zero) {
    const auto* const values = logits.as<decltype(zero)>();
    for (std::int64_t row = 0; row < ids.elements(); ++row) {
      float largest = -INFINITY;
      std::int32_t at = -1;
      bool broken = false;
      for (std::int64_t i = 0; i < n; ++i) {
        const float x = to_float(values[row * n + i]);
        broken |= std::isnan(x);
        if (x > largest) largest = x, at = static_cast<std::int32_t>(i);
      }
      ids.as<std::int32_t>()[row] = broken || !std::isfinite(largest) ? -1 : at;
    }
  });
}

void embed_codes(CpuStream& stream, ConstView ids, CodedType type, const std::byte* table, View y) {
  const std::int64_t n = y.shape[-1];
  const std::size_t row_bytes = coded_bytes(type, n), out_bytes = static_cast<std::size_t>(n) * size_of(y.dtype);
  for (std::int64_t i = 0; i < ids.elements(); ++i)
    expand_weights(stream, type, table + static_cast<std::size_t>(ids.as<std::int32_t>()[i]) * row_bytes,
                   {y.as<std::byte>() + static_cast<std::size_t>(i) * out_bytes, y.dtype, {n}});
}

}  // namespace zeepo
