#include "zeepo/zero/unit_state.h"

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

View part_of(const View& flat, std::int64_t begin, std::int64_t count) {
  if (!flat.data) return {nullptr, flat.dtype, {count}};
  return {
      static_cast<std::byte*>(flat.data) + static_cast<std::size_t>(begin) * size_of(flat.dtype), flat.dtype, {count}};
}

StateViews StateViews::part(std::int64_t begin, std::int64_t count) const {
  StateViews result{part_of(param, begin, count), part_of(low, begin, count), {}};
  for (const View& moment : moments) result.moments.push_back(part_of(moment, begin, count));
  return result;
}

std::optional<DType> StateLayout::low() const {
  if (dtype == DType::bf16) return DType::i16;
  if (dtype == DType::f16) return DType::f32;
  return std::nullopt;
}

std::size_t StateLayout::bytes(std::int64_t elements) const {
  const std::size_t each = (holds_param ? size_of(dtype) : 0) + (low() ? size_of(*low()) : 0) +
                           static_cast<std::size_t>(moments) * size_of(DType::f32);
  return static_cast<std::size_t>(elements) * each;
}

StateViews StateLayout::views(std::byte* memory, std::int64_t elements) const {
  std::size_t at = 0;
  const auto next = [&](DType type) {
    const View view{memory ? memory + at : nullptr, type, {elements}};
    at += view.bytes();
    return view;
  };
  StateViews result;
  for (int i = 0; i < moments; ++i) result.moments.push_back(next(DType::f32));
  if (low()) result.low = next(*low());
  if (holds_param) result.param = next(dtype);
  return result;
}

}  // namespace zeepo
