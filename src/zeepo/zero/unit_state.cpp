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

Weights UnitState::weights(const Extent& extent) const {
  return {params.of(extent).view(), low.defined() ? low.of(extent).view() : View{}};
}

}  // namespace zeepo
