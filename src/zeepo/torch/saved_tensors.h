// Tensors that a foreign autograd has saved for its backward pass, kept in a lower tier meanwhile.
//
// A tensor goes down beside the compute; its memory may be used again once it has left. It comes up to memory of the
// caller's when it is asked for, as often as that is. Calls come from the thread that the engine is called from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "zeepo/memory/lower_tiers.h"

namespace zeepo {

class SavedTensors {
 public:
  // In `place` of these tiers, which are borrowed.
  SavedTensors(LowerTiers& tiers, Place place) : tiers_(tiers), place_(place) {}
  // Waits for what is on its way.
  ~SavedTensors();
  SavedTensors(const SavedTensors&) = delete;
  SavedTensors& operator=(const SavedTensors&) = delete;

  // Starts the way down, behind what the compute stream has been given; returns the tensor's number. The memory must
  // stay as it is until wait_until_left() returns. Throws Error when the tier is full.
  std::int64_t keep(const std::byte* data, std::size_t bytes);
  void wait_until_left(std::int64_t number);
  // Starts the way up, to memory that the compute stream has done with when it comes to here; and waits for it.
  void start_bringing(std::int64_t number, std::byte* to);
  void wait_until_here(std::int64_t number);
  // The tensor is not asked for again. Numbers that are gone already are left alone.
  void drop(std::int64_t number) noexcept;

 private:
  struct Saved {
    Block block;
    Completion leaving, coming;
  };
  Saved& at(std::int64_t number);

  LowerTiers& tiers_;
  Place place_;
  std::int64_t next_ = 0;
  std::map<std::int64_t, Saved> saved_;
};

}  // namespace zeepo
