#include "zeepo/tensor/tensor.h"

#include "zeepo/base/error.h"
#include "zeepo/device/copy.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

std::size_t bytes_of(const Shape& shape, DType dtype) {
  return static_cast<std::size_t>(shape.elements()) * size_of(dtype);
}

template <class T>
void widen(const std::vector<std::byte>& bytes, std::vector<float>& out) {
  const auto* values = reinterpret_cast<const T*>(bytes.data());
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = to_float(values[i]);
}

}  // namespace

Tensor::Tensor(Shape shape, DType dtype, Kind kind) : shape_(shape), dtype_(dtype) {
  const Device& device = Device::current();
  if (device.launching) throw Error("tensor: {} made in a launch, which a dry pass does not run", shape.str());
  block_ = std::make_shared<const Block>(device.memory.allocate(bytes_of(shape, dtype), kind));
}

Tensor::Tensor(std::shared_ptr<const Block> block, std::size_t offset_bytes, Shape shape, DType dtype)
    : block_(std::move(block)), offset_(offset_bytes), shape_(shape), dtype_(dtype) {
  if (offset_ + bytes_of(shape, dtype) > block_->bytes())
    throw Error("tensor: {} {} at byte {} ends past its block of {} bytes", name_of(dtype), shape.str(), offset_,
                block_->bytes());
}

Tensor Tensor::from_bytes(std::span<const std::byte> bytes, Shape shape, DType dtype, Kind kind) {
  if (bytes.size() != bytes_of(shape, dtype))
    throw Error("tensor: {} bytes given for {} {}", bytes.size(), name_of(dtype), shape.str());
  Tensor result(shape, dtype, kind);
  launch([&](auto& s) { upload(s, bytes.data(), result.view().data, bytes.size()); });
  return result;
}

View Tensor::view() const {
  if (!block_) return {};
  return {block_->data() ? block_->data() + offset_ : nullptr, dtype_, shape_};
}

std::vector<float> Tensor::to_floats() const {
  std::vector<float> out(static_cast<std::size_t>(elements()));
  std::vector<std::byte> bytes(view().bytes());
  auto& stream = Device::current().compute;
  launch([&](auto& s) { copy_to_host(s, view().data, bytes.data(), bytes.size()); });
  stream.synchronize();
  switch (dtype_) {
    case DType::f32: widen<float>(bytes, out); break;
    case DType::bf16: widen<bf16>(bytes, out); break;
    case DType::f16: widen<f16>(bytes, out); break;
    default: throw Error("tensor: cannot read {} as floats", name_of(dtype_));
  }
  return out;
}

float Tensor::item() const {
  if (elements() != 1) throw Error("tensor: item() of {}: must have one element", shape_.str());
  return to_floats()[0];
}

Tensor Tensor::viewed_as(Shape shape) const {
  if (shape.elements() != elements()) throw Error("tensor: {} seen as {}", shape_.str(), shape.str());
  return part(0, shape);
}

Tensor Tensor::bytes_as(std::size_t begin, Shape shape, DType dtype) const {
  return Tensor(block_, offset_ + begin, shape, dtype);
}

Tensor Tensor::part(std::int64_t begin, Shape shape) const {
  if (begin < 0 || begin + shape.elements() > elements())
    throw Error("tensor: elements [{}, {}) of {}", begin, begin + shape.elements(), shape_.str());
  return Tensor(block_, offset_ + static_cast<std::size_t>(begin) * size_of(dtype_), shape, dtype_);
}

}  // namespace zeepo
