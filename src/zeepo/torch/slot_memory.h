// Ranges of addresses that stay for good, and slots of memory that come and go behind them.
//
// A slot is mapped at one range after another; what a range held is lost when its slot goes to another one. On the CPU
// slots are parts of one memory file. Memory of a GPU would be mapped by the same four calls.
#pragma once

#include <cstddef>
#include <vector>

namespace zeepo {

// What lies behind a range without a slot: what was there last, which costs nothing; or nothing, so that a read or a
// write there ends the process instead of giving a wrong number.
enum class AbsentMemory { stale, guarded };

class SlotMemory {
 public:
  // One range for each of these sizes.
  SlotMemory(const std::vector<std::size_t>& range_bytes, AbsentMemory absent);
  ~SlotMemory();
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
    std::size_t range = kNone;  // that has it
  };
  std::size_t free_slot(std::size_t preferred);

  AbsentMemory absent_;
  int file_ = -1;
  std::size_t slot_bytes_ = 0;
  std::vector<Range> ranges_;
  std::vector<Slot> slots_;
};

}  // namespace zeepo
