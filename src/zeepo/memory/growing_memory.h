// Addresses for a whole budget, with memory behind as many of the first ones as have been asked for: for a tier that
// shares its device with another allocator. Memory stays until the range goes.
#pragma once

#include <cstddef>
#include <memory>

#include "zeepo/device/mapped_memory.h"

namespace zeepo {

class GrowingMemory {
 public:
  // Throws Error when there are no such addresses.
  GrowingMemory(std::unique_ptr<MappedMemory> memory, std::size_t budget_bytes);

  std::byte* data() const { return begin_; }
  std::size_t taken_bytes() const { return taken_; }
  // Memory behind the first `bytes`, at most the budget. Throws Error when memory is short; what was there stays.
  void cover(std::size_t bytes);

 private:
  static constexpr std::size_t kStep = std::size_t{32} << 20;  // that it grows by at least

  std::unique_ptr<MappedMemory> memory_;
  std::size_t budget_;
  std::byte* begin_ = nullptr;
  std::size_t taken_ = 0;
};

}  // namespace zeepo
