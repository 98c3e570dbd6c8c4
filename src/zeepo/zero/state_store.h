// The bytes of this rank's shard in every tier, and the buffers through which they pass: the one way to bring state
// within reach, for stepping, loading, saving and reading.
//
// A piece that is open for its step has its views in memory that its stepper reaches, and is written back when closed.
// Deferred pieces pass through a ring of buffers in one fixed order, again and again: states are read ahead as far as
// buffers are free, gradients once they are complete. A window brings a range to the host: the way of names and files.
// All calls come from the rank's thread, with its Device in scope; transfers run beside it.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "zeepo/memory/lower_tiers.h"
#include "zeepo/zero/state_plan.h"
#include "zeepo/zero/state_slots.h"

namespace zeepo {

// A piece within reach of who steps it.
struct OpenPiece {
  StateViews states;
  View param, grads;
  SlotParts parts;                        // what came through a buffer, ...
  std::optional<std::int64_t> slot = {};  // ... and which
};

// A range of this rank's shard in host memory, which lies in one piece of optimizer state.
struct HostWindow {
  std::size_t unit;
  Extent range;
  View param;         // the weights in the training dtype
  StateViews states;  // empty where the unit is not trained; `moments` only where the state is not on the device
};

class StateStore {
 public:
  StateStore(const UnitPlan& units, const StatePlan& plan);
  // Waits for what is on its way.
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  // Parameters on the device: all ranks' where kept whole, else this rank's shard. Undefined where offloaded.
  const FlatPart& params(std::size_t unit) const { return units_[unit].params; }
  // Starts bringing an offloaded shard to device memory, behind its last update.
  [[nodiscard]] Completion bring_params(std::size_t unit, const View& to);
  // Updates of parameters that are on their way to where they are kept.
  const std::vector<Completion>& params_written(std::size_t unit) const { return units_[unit].params_written; }
  void wait_params_written(std::size_t unit);

  // Reduced gradients on the device, kept or, until they are stepped, fresh; undefined where each piece has its own.
  Tensor gradients(std::size_t unit, const Extent& extent) const;
  bool keeps_on_device(std::size_t unit) const { return units_[unit].grads.defined(); }
  const Tensor& all_gradients(std::size_t unit) const { return units_[unit].grads.tensor; }
  const Tensor& local_sum(std::size_t unit) const { return units_[unit].local_sum; }
  // Where pieces keep gradients: brings the sum of earlier micro-steps together, and takes the new one apart. What goes
  // down must stay until its Leaving is done.
  struct Leaving {
    Tensor gradients;
    Completion done;
    Place place;
  };
  [[nodiscard]] std::vector<Completion> bring_sum(std::size_t unit, const Tensor& to);
  [[nodiscard]] std::vector<Leaving> keep_sum(std::size_t unit, const Tensor& sum);
  void drop_fresh(std::size_t unit) { units_[unit].fresh = {}; }

  // The order in which deferred pieces are opened, and by whom; buffers are made at the first call. What was read ahead
  // is forgotten.
  void set_order(const std::vector<PieceId>& pieces, const std::vector<SteppedBy>& sides);
  void set_reach(int pieces);
  [[nodiscard]] OpenPiece open(const PieceId& id, SteppedBy by);
  void close(const PieceId& id, const OpenPiece& open);
  // The gradients of the next `count` pieces that pass through buffers are complete.
  void expect_gradients(std::int64_t count);
  void read_ahead();
  void forget_read_ahead();
  // What was not opened in this round is passed over: the next round starts with the first piece.
  void start_round();
  // A piece in host memory, for a step beside the device.
  struct HostPiece {
    StateViews states;
    View own_param;                // empty where the weights are on the device, ...
    View device_param;             // ... and here
    std::vector<Completion> after;  // before the state may be changed
  };
  [[nodiscard]] HostPiece on_host(const PieceId& id) const;
  void stepped_on_host(const PieceId& id, const Completion& state, const Completion& weights);

  enum class Access { read, fresh };  // fresh: the window is written whole, state that is not given starts at zero
  [[nodiscard]] HostWindow open_window(std::size_t unit, const Extent& range, Access access);
  void close_window(const HostWindow& window);
  void forget_windows() { buffered_ = {}; }
  void clear_device_state();
  // Waits until nothing is on its way.
  void drain();

 private:
  struct PieceMemory {
    Tensor device, device_grads;
    Block block, grads_block;
    Completion written, grads_written;  // of what was last written to each
  };
  struct UnitMemory {
    FlatPart params;
    Block params_block;  // this rank's shard, where offloaded
    FlatPart grads;
    Tensor local_sum, fresh;
    std::vector<PieceMemory> pieces;
    std::vector<Completion> params_written;
  };
  struct Passing {
    PieceId id;
    SlotParts parts;
  };
  // What a window's buffer for files holds: a part of a block.
  struct Buffered {
    const Block* block = nullptr;
    std::size_t offset = 0, bytes = 0;
    friend bool operator==(const Buffered&, const Buffered&) = default;
  };

  void allocate(std::size_t unit);
  void make_buffers();
  PieceMemory& memory(const PieceId& id) { return units_[id.unit].pieces[id.piece]; }
  StateSlots::Part slot_part(const PieceId& id, const SlotParts::Part& part, std::string_view what, const Block& block) const;
  std::byte* buffered(std::size_t buffer, const Block& block, std::size_t offset, std::size_t bytes, Access access);
  View staged(std::size_t buffer, const View& device, Access access);
  Extent param_chunk(std::size_t unit, const Extent& range) const;

  const UnitPlan& names_;
  const StatePlan& plan_;
  LowerTiers* lower_;  // null: none in scope
  std::vector<UnitMemory> units_;
  std::unique_ptr<StateSlots> slots_;  // where any piece passes through one
  std::vector<Passing> order_;         // the pieces that do, in order
  bool buffers_made_ = false;
  // Numbers of slots: the next to be used, to be read into, to get gradients; the end of those with gradients.
  std::int64_t used_ = 0, read_ = 0, grads_read_ = 0, grads_end_ = 0;
  // Windows: of state and of weights in files, what is in them, and copies of device memory.
  std::array<Block, 2> window_buffers_;
  std::array<Buffered, 2> buffered_{};
  std::array<std::vector<std::byte>, 2> host_copies_;
};

}  // namespace zeepo
