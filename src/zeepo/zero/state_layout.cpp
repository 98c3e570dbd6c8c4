#include "zeepo/zero/state_layout.h"

#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Tensor FlatPart::of(const Extent& wanted) const {
  return tensor.part(wanted.begin - extent.begin, {wanted.elements()});
}

FlatPart zeros(const Extent& extent, DType dtype, Kind kind) {
  const Tensor flat({extent.elements()}, dtype, kind);
  launch([&](auto& s) { fill(s, flat.view(), 0); });
  return {flat, extent};
}

namespace {

std::int64_t moment_blocks(std::int64_t elements) { return (elements + kMomentBlock - 1) / kMomentBlock; }

DType stored_as(MomentType type) {
  return type == MomentType::fp32 ? DType::f32 : type == MomentType::bf16 ? DType::bf16 : DType::u8;
}

}  // namespace

View part_of(const View& flat, std::int64_t begin, std::int64_t count) {
  if (!flat.data) return {nullptr, flat.dtype, {count}};
  return {
      static_cast<std::byte*>(flat.data) + static_cast<std::size_t>(begin) * size_of(flat.dtype), flat.dtype, {count}};
}

StateViews StateViews::part(std::int64_t begin, std::int64_t count) const {
  StateViews result{part_of(param, begin, count), part_of(remainder, begin, count), {}};
  for (const auto& [values, exponents] : moments)
    result.moments.emplace_back(part_of(values, begin, count),
                                part_of(exponents, begin / kMomentBlock, moment_blocks(count)));
  return result;
}

std::optional<DType> remainder_dtype(DType dtype) {
  if (dtype == DType::bf16) return DType::i16;
  if (dtype == DType::f16) return DType::f32;
  return std::nullopt;
}

std::size_t StateLayout::bytes(std::int64_t elements) const {
  const auto count = static_cast<std::size_t>(moments);
  const std::size_t each = (holds_param ? size_of(dtype) : 0) + (remainder() ? size_of(*remainder()) : 0) +
                           count * size_of(stored_as(moment_type));
  const auto exponents = moment_type == MomentType::eight_bit ? static_cast<std::size_t>(moment_blocks(elements)) : 0;
  return (static_cast<std::size_t>(elements) * each + count * exponents + 1) / 2 * 2;
}

StateViews StateLayout::views(std::byte* memory, std::int64_t elements) const {
  std::size_t at = 0;
  const auto next = [&](DType type, std::int64_t count) {
    const View view{memory ? memory + at : nullptr, type, {count}};
    at += view.bytes();
    return view;
  };
  StateViews result;
  for (int i = 0; i < moments; ++i) result.moments.push_back(next(stored_as(moment_type), elements));
  if (remainder()) result.remainder = next(*remainder(), elements);
  if (holds_param) result.param = next(dtype, elements);
  if (moment_type == MomentType::eight_bit)  // last: the arrays before them stay aligned
    for (auto& moment : result.moments) moment.exponents = next(DType::u8, moment_blocks(elements));
  return result;
}

}  // namespace zeepo
