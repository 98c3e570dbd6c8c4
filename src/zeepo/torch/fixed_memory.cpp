#include "zeepo/torch/fixed_memory.h"

#include <memory>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {

Block FixedMemory::Leases::allocate(std::size_t bytes, Kind) {
  throw Error("parameters: {} bytes of no unit: each unit has addresses of its own", bytes);
}

Block FixedMemory::Leases::lease_unit(std::size_t unit, std::size_t bytes) {
  Block held = device.count(bytes, Kind::working);
  slots.bring(unit);
  counted[unit] = std::move(held);
  return lease(slots.address(unit), unit, bytes, Kind::working);
}

void FixedMemory::Leases::release(std::size_t unit, std::size_t) noexcept {
  slots.give_back(unit);
  counted.erase(unit);
}

Tensor FixedMemory::take(std::size_t unit, std::int64_t elements, DType dtype) {
  const std::size_t bytes = static_cast<std::size_t>(elements) * size_of(dtype);
  return Tensor(std::make_shared<const Block>(leases_.lease_unit(unit, bytes)), 0, {elements}, dtype);
}

}  // namespace zeepo
