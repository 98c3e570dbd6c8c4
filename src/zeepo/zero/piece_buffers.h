// Brings pieces of optimizer state, with their weights and gradients, to who steps them, and writes them back.
//
// A piece on the device, or stepped by the host in host memory, is open where it lives. Other deferred pieces pass
// through a ring of buffers in one fixed order, again and again: states are read ahead as far as buffers are free,
// gradients once they are complete.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "zeepo/zero/state_slots.h"
#include "zeepo/zero/state_store.h"

namespace zeepo {

// A piece within reach of who steps it.
struct OpenPiece {
  StateViews states;
  View param, grads;
  SlotParts parts = {};                   // what came through a buffer, ...
  std::optional<std::int64_t> slot = {};  // ... and which
};

class PieceBuffers {
 public:
  PieceBuffers(const UnitPlan& units, const StatePlan& plan, StateStore& store);

  // The order in which deferred pieces are opened, and by whom; buffers are made at the first call. What was read ahead
  // is forgotten.
  void set_order(const std::vector<PieceId>& pieces, const std::vector<SteppedBy>& sides);
  // How many buffers may hold something: all of them at most.
  void set_reach(int pieces);
  [[nodiscard]] OpenPiece open(const PieceId& id, SteppedBy by);
  void close(const PieceId& id, const OpenPiece& open);

  // The gradients of the next `count` pieces that pass through buffers are complete.
  void expect_gradients(std::int64_t count);
  void read_ahead();
  void forget_read_ahead();
  // What was not opened in this round is passed over: the next round starts with the first piece.
  void start_round();

 private:
  struct Passing {
    PieceId id;
    SlotParts parts;
  };
  void make_buffers();
  StateSlots::Part slot_part(const PieceId& id, const SlotParts::Part& part, std::string_view what,
                             const Block& block) const;

  const UnitPlan& names_;
  const StatePlan& plan_;
  StateStore& store_;
  LowerTiers* lower_;
  std::unique_ptr<StateSlots> slots_;  // where any piece passes through one
  std::vector<Passing> order_;         // the pieces that do, in order
  bool buffers_made_ = false;
  // Numbers of slots: the next to be used, to be read into, to get gradients; the end of those with gradients.
  std::int64_t used_ = 0, read_ = 0, grads_read_ = 0, grads_end_ = 0;
};

}  // namespace zeepo
