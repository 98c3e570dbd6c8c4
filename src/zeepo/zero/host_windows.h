// A range of this rank's shard in host memory, wherever it lives: the way of names, files and checkpoints.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "zeepo/zero/state_store.h"

namespace zeepo {

// A range that lies in one piece of optimizer state.
struct HostWindow {
  std::size_t unit;
  Extent range;
  View param;         // the weights in the training dtype
  StateViews states;  // empty where the unit is not trained; `moments` of state on the device only with Access::state
};

class HostWindows {
 public:
  HostWindows(const UnitPlan& units, const StatePlan& plan, StateStore& store);

  // fresh: the window is written whole, and moments start at zero; state: the moments are written too.
  enum class Access { read, fresh, state };
  // Until the next one is opened.
  [[nodiscard]] HostWindow open(std::size_t unit, const Extent& range, Access access);
  // What was opened to be written goes to where it lives, and has come there.
  void close(const HostWindow& window);

  // Bytes of a unit's stored form in host memory, to be written whole; `offset` begins a page of files.
  [[nodiscard]] std::byte* open_stored(std::size_t unit, std::size_t offset, std::size_t bytes);
  void close_stored(std::size_t unit, std::size_t offset, std::size_t bytes);

 private:
  // What a buffer for files holds: a part of a block, as of a version of the store.
  struct Buffered {
    const Block* block = nullptr;
    std::size_t offset = 0, bytes = 0;
    std::int64_t version = 0;
    friend bool operator==(const Buffered&, const Buffered&) = default;
  };
  std::byte* buffered(std::size_t buffer, const Block& block, std::size_t offset, std::size_t bytes, Access access);
  View staged(std::size_t copy, const View& device, Access access);
  Extent param_chunk(std::size_t unit, const Extent& range) const;

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  LowerTiers* lower_;
  // Of state and of weights in files, what is in them, and copies of device memory.
  std::array<Block, 2> buffers_;
  std::array<Buffered, 2> buffered_{};
  std::vector<std::vector<std::byte>> host_copies_;
};

}  // namespace zeepo
