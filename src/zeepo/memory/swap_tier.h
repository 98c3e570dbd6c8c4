// A tier in files: blocks without an address, read and written by offset in whole pages.
#pragma once

#include "zeepo/io/swap_file.h"
#include "zeepo/memory/arena.h"
#include "zeepo/memory/tier.h"

namespace zeepo {

class SwapTier final : public Tier {
 public:
  // Blocks begin at pages of this size.
  static constexpr std::size_t kPageBytes = SwapFile::kPageBytes;
  static constexpr std::size_t whole_pages(std::size_t bytes) { return Arena::aligned(bytes, kPageBytes); }

  // Borrows the file; null: addresses without a file behind them, for a dry pass or for a budget of 0.
  SwapTier(std::string name, std::size_t budget_bytes, SwapFile* file);

  Block allocate(std::size_t bytes, Kind kind) override;
  std::size_t free_bytes() const override { return arena_.capacity() - arena_.used(); }
  std::size_t budget_bytes() const { return arena_.capacity(); }
  std::size_t high_water() const { return arena_.high_water(); }
  SwapFile& file() { return *file_; }

 private:
  void release(std::size_t offset, std::size_t bytes) noexcept override;

  Arena arena_;
  SwapFile* file_;
};

}  // namespace zeepo
