// A tier over one contiguous range of memory, taken once, addressed by an Arena: a device's memory, or the host's.
#pragma once

#include <memory>

#include "zeepo/device/memory.h"
#include "zeepo/memory/arena.h"
#include "zeepo/memory/growing_memory.h"
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
  // Memory of a GPU is taken at once; or as it is asked for, which leaves the rest to others.
  enum class Taken { at_once, as_asked };
  ArenaTier(std::string name, std::size_t budget_bytes, Stream& stream, Taken taken = Taken::at_once);

  Block allocate(std::size_t bytes, Kind kind) override;
  // A lease of no address, for bytes that somebody holds elsewhere on the device: they count as others do.
  Block count(std::size_t bytes, Kind kind);
  std::size_t free_bytes() const override { return arena_.capacity() - arena_.used() - counted_; }
  std::size_t budget_bytes() const { return arena_.capacity(); }
  // What the arena must hold for what has been allocated so far, gaps included.
  std::size_t high_water() const { return arena_.high_water(); }

 private:
  static constexpr std::size_t kElsewhere = static_cast<std::size_t>(-1);
  void release(std::size_t offset, std::size_t bytes) noexcept override;
  [[noreturn]] void refuse(std::size_t bytes, Kind kind) const;
  std::byte* data() const { return grows_ ? grows_->data() : memory_.data(); }

  Arena arena_;
  MemoryRange memory_;
  std::unique_ptr<GrowingMemory> grows_;  // or this
  std::size_t counted_ = 0;               // elsewhere
};

}  // namespace zeepo
