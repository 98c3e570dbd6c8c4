// A ring of buffers through which optimizer states pass on their way to who steps them: buffers in host memory for
// states in files, buffers in device memory for states in files or host memory. Read ahead, used, written back.
//
// Uses are numbered 0, 1, 2, ...; use n has buffer n modulo the number of buffers. Only use() waits for a transfer. All
// calls come from the rank's thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "zeepo/memory/lower_tiers.h"
#include "zeepo/zero/step_side.h"

namespace zeepo {

class StateSlots {
 public:
  // Bytes [offset, offset + bytes) of a block, copied to byte `at` of the buffer.
  struct Part {
    const Block* block;
    std::size_t offset, bytes, at;
    About about = {};
    friend bool operator==(const Part&, const Part&) = default;
  };

  StateSlots(LowerTiers& tiers, StepSide side, std::size_t slot_bytes, int count);
  // Waits for all transfers.
  ~StateSlots();

  std::size_t slot_bytes() const { return slots_[0].memory.bytes(); }
  // How many buffers may be filled at the same time: at least 1, at most all.
  void set_reach(int count) { reach_ = std::clamp<std::int64_t>(count, 1, static_cast<std::int64_t>(slots_.size())); }
  std::vector<const Block*> buffers() const;
  // Whether use n may have a buffer while use number `used` still has one.
  bool in_reach(std::int64_t n, std::int64_t used) const { return n < used + reach_; }
  // Starts reading into the buffer of use n, once the buffer's earlier contents are written and `after` is done.
  void read(std::int64_t n, const Part& part, const Completion& after);
  // Waits for the reads of use n and returns its buffer. Null in a dry pass.
  std::byte* use(std::int64_t n);
  // Starts writing a part of the buffer back to its block.
  [[nodiscard]] Completion write(std::int64_t n, const Part& part);
  // Keeps the buffer from its next use until `until` is done: something else still reads it.
  void reserve_until(std::int64_t n, Completion until);
  // Waits for all transfers: the buffers are free for any use.
  void drain();

 private:
  struct Slot {
    Block memory;
    Completion reading;
    Place from = Place::host;  // of the blocks that are read
    std::vector<Completion> leaving;
  };
  Slot& slot(std::int64_t n) { return slots_[static_cast<std::size_t>(n) % slots_.size()]; }

  LowerTiers& tiers_;
  StepSide side_;
  std::vector<Slot> slots_;
  std::int64_t reach_;
};

}  // namespace zeepo
