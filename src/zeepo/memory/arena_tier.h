// A tier over one contiguous range of memory, taken once, addressed by an Arena: a device's memory, or the host's.
#pragma once

#include "zeepo/device/memory.h"
#include "zeepo/memory/arena.h"
#include "zeepo/memory/tier.h"

namespace zeepo {

class ArenaTier final : public Tier {
 public:
  // Backing::none leases addresses without memory behind them, for a dry pass.
  enum class Backing { memory, none };

  // Over host memory. Reserves the whole budget as address space; pages come into being when first touched.
  ArenaTier(std::string name, std::size_t budget_bytes, Backing backing, std::size_t alignment = Arena::kAlignment);
  // Over memory that was taken for it.
  ArenaTier(std::string name, MemoryRange memory, std::size_t alignment);
  // Over memory that kernels on `stream` work on; nothing behind it on a dry stream.
  ArenaTier(std::string name, std::size_t budget_bytes, Stream& stream);

  Block allocate(std::size_t bytes, Kind kind) override;
  std::size_t free_bytes() const override { return arena_.capacity() - arena_.used(); }
  std::size_t budget_bytes() const { return arena_.capacity(); }
  // What the arena must hold for what has been allocated so far, gaps included.
  std::size_t high_water() const { return arena_.high_water(); }

 private:
  void release(std::size_t offset, std::size_t bytes) noexcept override;

  Arena arena_;
  MemoryRange memory_;
};

}  // namespace zeepo
