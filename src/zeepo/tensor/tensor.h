// A contiguous array in device memory: a shape over a part of a shared Block. Copies share the memory.
//
// A tensor that takes part in a backward pass carries its Gradient (autograd/); this layer only hands it along.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "zeepo/base/shape.h"
#include "zeepo/device/view.h"
#include "zeepo/memory/tier.h"

namespace zeepo {

class Gradient;

class Tensor {
 public:
  Tensor() = default;
  // Uninitialised memory of the current device.
  explicit Tensor(Shape shape, DType dtype = DType::f32, Kind kind = Kind::activations);
  // A part of `block`, from `offset_bytes` on.
  Tensor(std::shared_ptr<const Block> block, std::size_t offset_bytes, Shape shape, DType dtype);

  // Device memory filled from the host. The values are taken at once.
  template <class T>
  static Tensor from(std::span<const T> values, Shape shape, Kind kind = Kind::activations) {
    return from_bytes(std::as_bytes(values), shape, dtype_of<T>(), kind);
  }
  // Waits for the compute stream, then copies to the host; zeros on a dry device.
  std::vector<float> to_floats() const;
  float item() const;

  bool defined() const { return block_ != nullptr; }
  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  std::int64_t elements() const { return shape_.elements(); }
  View view() const;

  // The same elements with another shape; the gradient does not come along (ops/reshape.h keeps it).
  Tensor viewed_as(Shape shape) const;
  // Elements [begin, begin + shape.elements()) of the flattened tensor; without the gradient.
  Tensor part(std::int64_t begin, Shape shape) const;
  // The bytes from `begin` on as elements of another type; without the gradient.
  Tensor bytes_as(std::size_t begin, Shape shape, DType dtype) const;
  // The same values, outside any backward pass.
  Tensor detached() const { return viewed_as(shape_); }
  // Whether this is the only tensor on its memory, so that it may be written in place.
  bool unique() const { return block_.use_count() == 1; }

  const std::shared_ptr<Gradient>& gradient() const { return gradient_; }
  void set_gradient(std::shared_ptr<Gradient> gradient) { gradient_ = std::move(gradient); }

 private:
  static Tensor from_bytes(std::span<const std::byte> bytes, Shape shape, DType dtype, Kind kind);

  std::shared_ptr<const Block> block_;
  std::size_t offset_ = 0;  // bytes
  Shape shape_;
  DType dtype_ = DType::f32;
  std::shared_ptr<Gradient> gradient_;
};

}  // namespace zeepo
