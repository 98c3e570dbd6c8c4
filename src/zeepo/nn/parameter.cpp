#include "zeepo/nn/parameter.h"

#include "zeepo/base/error.h"

namespace zeepo {

Parameter::Parameter(std::string name, Shape shape, Init init)
    : name_(std::move(name)),
      init_(init),
      slices_{Slice{name_, shape}},
      leaf_(std::make_shared<Leaf>(shape, DType::f32)) {}

void Parameter::set_slices(std::vector<Slice> slices) {
  std::int64_t elements = 0;
  for (const auto& slice : slices) elements += slice.elements;
  if (elements != this->elements())
    throw Error("parameter {}: its slices have {} elements, it has {}", name_, elements, this->elements());
  slices_ = std::move(slices);
}

Parameter::operator Tensor() const {
  Tensor value = leaf_->current();
  if (!value.defined()) throw Error("parameter {}: used while it has no memory", name_);
  value.set_gradient(leaf_);
  return value;
}

}  // namespace zeepo
