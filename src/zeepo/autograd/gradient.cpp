#include "zeepo/autograd/gradient.h"

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Gradient::Target Gradient::target() {
  if (!written()) {
    value_ = Tensor(shape_, dtype_);
    return {value_, Write::overwrite};
  }
  if (!value_.unique()) {
    Tensor own(shape_, dtype_);
    launch([&](auto& s) { copy(s, value_.view(), own.view()); });
    value_ = own;
  }
  return {value_, Write::add};
}

void Gradient::add(const Tensor& contribution) {
  if (contribution.elements() != shape_.elements())
    throw Error("gradient: {} added to {}", contribution.shape().str(), shape_.str());
  if (!written()) {
    value_ = contribution.viewed_as(shape_);
    return;
  }
  const Tensor sum = value_.unique() ? value_ : Tensor(shape_, dtype_);
  launch([&](auto& s) { zeepo::add(s, value_.view(), contribution.view(), sum.view()); });
  value_ = sum;
}

Gradient::Target Leaf::target() {
  if (!store_) throw Error("gradient: a parameter of shape {} has no place for its gradient", shape_.str());
  return store_->gradient_of(*this);
}

void Leaf::add(const Tensor& contribution) {
  const auto to = target();
  launch([&](auto& s) {
    if (to.write == Write::add)
      zeepo::add(s, to.tensor.view(), contribution.view(), to.tensor.view());
    else
      copy(s, contribution.view(), to.tensor.view());
  });
}

}  // namespace zeepo
