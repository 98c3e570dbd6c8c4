// Buffers that states pass through in a fixed order, again and again, on their way to where they are stepped: in host
// memory from files, in device memory from either. Read ahead, used, written behind.
//
// The order is that of numbers 0, 1, 2, ...; number n uses buffer n modulo their count. Nothing here waits for a disk
// but use(). All calls come from the rank's thread.
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
  // [offset, offset + bytes) of a block, which is at byte `at` of the buffer.
  struct Part {
    const Block* block;
    std::size_t offset, bytes, at;
    About about = {};
    friend bool operator==(const Part&, const Part&) = default;
  };

  StateSlots(LowerTiers& tiers, StepSide side, std::size_t slot_bytes, int count);
  // Waits for what is on its way.
  ~StateSlots();

  std::size_t slot_bytes() const { return slots_[0].memory.bytes(); }
  // How many of them may hold something at once: 1 at least, all of them at most.
  void set_reach(int count) { reach_ = std::clamp<std::int64_t>(count, 1, static_cast<std::int64_t>(slots_.size())); }
  std::vector<const Block*> buffers() const;
  // Whether number n has, or could have, a buffer before number `used` is done with.
  bool in_reach(std::int64_t n, std::int64_t used) const { return n < used + reach_; }
  // Starts reading into the buffer of number n, once what is in it has been written and `after` is done.
  void read(std::int64_t n, const Part& part, const Completion& after);
  // The buffer, when all that was asked for is in it. Null in a dry pass.
  std::byte* use(std::int64_t n);
  // Starts writing what is in it.
  [[nodiscard]] Completion write(std::int64_t n, const Part& part);
  // The buffer is read from by something else too until this is done.
  void hold(std::int64_t n, Completion until);
  // Waits until nothing is on its way: the buffers are free for any use.
  void drain();

 private:
  struct Slot {
    Block memory;
    Completion reading;
    Place from = Place::host;  // where what is read lives
    std::vector<Completion> leaving;
  };
  Slot& slot(std::int64_t n) { return slots_[static_cast<std::size_t>(n) % slots_.size()]; }

  LowerTiers& tiers_;
  StepSide side_;
  std::vector<Slot> slots_;
  std::int64_t reach_;
};

}  // namespace zeepo
