#include <cstring>

#include "zeepo/kernels/coded_weights.h"
#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/expand_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// The values of a row in fp32; the compiler makes vectors of these loops.
HWY_ATTR void expand_row(CodedType type, const std::byte* row, float* values) {
  const auto* codes = reinterpret_cast<const std::int8_t*>(row);
  std::uint16_t scales[kCodedRow / 32];
  const std::int64_t block = coded_block(type);
  std::memcpy(scales, row + code_bytes(type), static_cast<std::size_t>(kCodedRow / block) * sizeof(std::uint16_t));
  if (type == CodedType::int8) {
    for (std::int64_t i = 0; i < kCodedRow; ++i) values[i] = static_cast<float>(codes[i]);
  } else {
    for (std::int64_t i = 0; i < kCodedRow / 2; ++i) {
      const auto both = static_cast<std::int32_t>(static_cast<std::uint8_t>(codes[i]));
      values[i] = static_cast<float>(((both & 15) ^ 8) - 8);
      values[i + kCodedRow / 2] = static_cast<float>(((both >> 4) ^ 8) - 8);
    }
  }
  for (std::int64_t b = 0; b * block < kCodedRow; ++b) {
    const float scale = to_float(bf16{scales[b]});
    for (std::int64_t i = b * block; i < (b + 1) * block; ++i) values[i] *= scale;
  }
}

void expand_range(CodedType type, const std::byte* rows, View to, std::int64_t begin, std::int64_t end) {
  with_float_type(to.dtype, [&](auto zero) HWY_ATTR {
    auto* const out = to.as<decltype(zero)>();
    HWY_ALIGN float values[kCodedRow];
    for (std::int64_t r = begin; r < end; ++r) {
      expand_row(type, rows + static_cast<std::size_t>(r) * coded_row_bytes(type), values);
      auto* const row = out + r * kCodedRow;
      sweep(kCodedRow, [&](std::int64_t i, auto count) HWY_ATTR { store(load(values + i, count), row + i, count); });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

constexpr std::int64_t kRowsAtOnce = 256;  // a task of the pool

HWY_EXPORT(expand_range);

}  // namespace

void expand_weights(CpuStream& stream, CodedType type, const std::byte* rows, View values) {
  stream.pool().for_range(values.elements() / kCodedRow, kRowsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(expand_range)(type, rows, values, begin, end);
  });
}

}  // namespace zeepo
#endif
