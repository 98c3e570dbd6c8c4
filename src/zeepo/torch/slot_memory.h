// Ranges of addresses that stay for good, and slots of memory that come and go behind them.
//
// A slot is mapped at one range after another, and may be mapped at several at once; what a range held is lost when its
// slot goes to another one. A slot is as large as the range that it was made for, and serves ranges of at least half
// that size. Where a range gets another slot than the last time, the work on its addresses is waited for.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "zeepo/device/mapped_memory.h"

namespace zeepo {

// What lies behind a range without a slot: what was there last, which costs nothing; or nothing, so that a read or a
// write there is a fault instead of a wrong number.
enum class AbsentMemory { stale, guarded };

class SlotMemory {
 public:
  // One range for each of these sizes, of the memory that kernels on `stream` work on; borrowed.
  SlotMemory(const std::vector<std::size_t>& range_bytes, AbsentMemory absent, Stream& stream);
  SlotMemory(const SlotMemory&) = delete;
  SlotMemory& operator=(const SlotMemory&) = delete;

  std::byte* address(std::size_t range) const { return ranges_[range].begin; }
  // Puts a free slot behind the range: the one that was there last, if it is free. Throws Error when memory is short.
  void bring(std::size_t range);
  void give_back(std::size_t range) noexcept;
  std::size_t slots() const { return slots_.size(); }

 private:
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Range {
    std::byte* begin = nullptr;
    std::size_t bytes = 0;
    std::size_t slot = kNone;    // that is there now
    std::size_t mapped = kNone;  // that is mapped there, and may be elsewhere too
  };
  struct Slot {
    std::size_t piece = 0, bytes = 0;  // of the memory
    std::size_t range = kNone;         // that has it
  };
  std::size_t free_slot(const Range& range);

  AbsentMemory absent_;
  Stream& stream_;
  std::unique_ptr<MappedMemory> memory_;
  std::vector<Range> ranges_;
  std::vector<Slot> slots_;
};

}  // namespace zeepo
