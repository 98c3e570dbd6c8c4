#include "zeepo/nn/parameter.h"

#include <algorithm>

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

void Parameter::freeze(std::size_t slice) {
  slices_[slice].trainable = false;
  leaf_->set_trainable(std::ranges::any_of(slices_, &Slice::trainable));
}

bool Parameter::partly_frozen() const {
  return std::ranges::any_of(slices_, &Slice::trainable) && !std::ranges::all_of(slices_, &Slice::trainable);
}

Parameter::operator Tensor() const {
  Tensor value = leaf_->current();
  if (!value.defined()) throw Error("parameter {}: used while it has no memory", name_);
  value.set_gradient(leaf_);
  return value;
}

}  // namespace zeepo
