// Addresses of a device that stay, and memory that comes and goes behind them. One piece of memory may be behind
// several ranges of addresses at once.
//
// On the CPU pieces are files without a name; on a GPU they are the driver's. Whoever maps a range anew, or unmaps one,
// has waited for the work on it. Sizes are multiples of the granularity. Used by one thread at a time.
#pragma once

#include <cstddef>
#include <memory>

#include "zeepo/device/stream.h"

namespace zeepo {

class MappedMemory {
 public:
  virtual ~MappedMemory() = default;

  virtual std::size_t granularity() const = 0;
  std::size_t whole(std::size_t bytes) const {
    const std::size_t unit = granularity();
    return bytes <= unit ? unit : (bytes + unit - 1) / unit * unit;
  }

  // Addresses with nothing behind them, for as long as this object is there. Throws Error when there are none.
  virtual std::byte* reserve(std::size_t bytes) = 0;
  // A piece of memory, by its number, for as long as this object is there. Throws Error when memory is short.
  virtual std::size_t take(std::size_t bytes) = 0;
  // Puts the first `bytes` of a piece behind addresses that one call of reserve() has given, in place of what was
  // there.
  virtual void map(std::byte* at, std::size_t bytes, std::size_t piece) = 0;
  // From now on a read or a write there is a fault.
  virtual void unmap(std::byte* at, std::size_t bytes) noexcept = 0;
};
std::unique_ptr<MappedMemory> make_mapped_memory(CpuStream&);
std::unique_ptr<MappedMemory> make_mapped_memory(CudaStream&);

}  // namespace zeepo
