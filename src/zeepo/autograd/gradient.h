// The gradient of one value during a backward pass.
//
// Every use of the value adds its contribution, in the order of the pass. The first one is kept as it is; a later one
// is added in place when nobody else shares the memory, else into a new tensor. An op that can add by itself (a matrix
// product) asks for target() and writes there.
#pragma once

#include <utility>

#include "zeepo/autograd/coded_value.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

class Gradient {
 public:
  Gradient(Shape shape, DType dtype) : shape_(shape), dtype_(dtype) {}
  virtual ~Gradient() = default;
  Gradient(const Gradient&) = delete;
  Gradient& operator=(const Gradient&) = delete;

  struct Target {
    Tensor tensor;  // of the gradient's type; a parameter's may be fp32
    Write write;    // the caller must overwrite, or add to, all of it
  };
  virtual Target target();
  virtual bool is_parameter() const { return false; }
  virtual void add(const Tensor& contribution);

  bool written() const { return value_.defined(); }
  const Tensor& value() const { return value_; }
  Tensor take() { return std::exchange(value_, {}); }

 protected:
  Shape shape_;
  DType dtype_;
  Tensor value_;
};

// Where to write the gradient of an input; an undefined tensor, an empty view to the kernel, when it is not wanted.
inline Gradient::Target target_of(const std::shared_ptr<Gradient>& gradient) {
  return gradient ? gradient->target() : Gradient::Target{{}, Write::overwrite};
}

// The gradient of a parameter, and the parameter's value. The value may come and go between forward and backward pass
// (a sharded parameter is gathered anew), so ops look it up here when they need it. So does the memory for the
// gradient.
class Leaf final : public Gradient {
 public:
  class Store {
   public:
    virtual ~Store() = default;
    // The memory in which this parameter's gradient is summed, of its type or fp32, and how this writer is to write it:
    // asked by every op that has a part of the gradient.
    virtual Target gradient_of(const Leaf& leaf) = 0;
    // The value as it is now; undefined while the parameter has no memory.
    virtual Tensor value_of(const Leaf& leaf) { return leaf.given_; }
    // The same as it is stored; undefined where it is stored as it is used.
    virtual CodedValue codes_of(const Leaf&) { return {}; }
  };

  Leaf(Shape shape, DType dtype) : Gradient(shape, dtype) {}

  Tensor current() const { return store_ ? store_->value_of(*this) : given_; }
  CodedValue codes() const { return store_ ? store_->codes_of(*this) : CodedValue{}; }
  // The value where no store has it.
  void set_current(Tensor value) { given_ = std::move(value); }
  const Shape& shape() const { return shape_; }
  void set_dtype(DType dtype) { dtype_ = dtype; }
  DType dtype() const { return dtype_; }
  void set_store(Store* store) { store_ = store; }
  // A frozen parameter wants no gradient.
  bool trainable() const { return trainable_; }
  void set_trainable(bool trainable) { trainable_ = trainable; }

  Target target() override;
  bool is_parameter() const override { return true; }
  void add(const Tensor& contribution) override;

 private:
  Tensor given_;
  Store* store_ = nullptr;
  bool trainable_ = true;
};

}  // namespace zeepo
