// The bytes of this rank's shard in every tier: parameters, gradients, optimizer state.
//
// PieceBuffers brings pieces of it to who steps them, HostWindows brings ranges of it to the host for names and files.
// All calls come from the rank's thread, with its Device in scope; transfers run beside it.
#pragma once

#include <cstdint>
#include <vector>

#include "zeepo/memory/lower_tiers.h"
#include "zeepo/zero/state_plan.h"

namespace zeepo {

class StateStore {
 public:
  struct PieceMemory {
    Tensor device, device_grads;
    Block block, grads_block;
    Completion written, grads_written;  // of what was last written to each

    std::byte* state() const;  // on the device or the host; null in files and in a dry pass
  };
  struct UnitMemory {
    FlatPart params;                     // on the device: all ranks' where kept whole and exact, else this rank's shard
    Tensor decoded;                      // or all ranks' as their messages tell them
    Tensor coded;                        // or this rank's shard in its stored form
    Block params_block;                  // or this rank's shard, offloaded
    std::vector<FilePart> params_parts;  // or this rank's shard in files that others have written
    FlatPart grads;
    Tensor local_sum, fresh;
    std::vector<PieceMemory> pieces;
    std::vector<Completion> params_written;  // updates of parameters on their way to where they are kept
  };

  StateStore(const UnitPlan& units, const StatePlan& plan);
  // Waits for what is on its way.
  ~StateStore();
  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  UnitMemory& unit(std::size_t unit) { return units_[unit]; }
  PieceMemory& piece(const PieceId& id) { return units_[id.unit].pieces[id.piece]; }
  const FlatPart& params(std::size_t unit) const { return units_[unit].params; }
  // Parameters that are kept whole, as the model sees them.
  const Tensor& whole_params(std::size_t unit) const {
    return units_[unit].decoded.defined() ? units_[unit].decoded : units_[unit].params.tensor;
  }
  // Starts bringing an offloaded shard of parameters to device memory, behind its last update.
  [[nodiscard]] Completion bring_params(std::size_t unit, const View& to);
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

  // Counts the changes of state: what was read before the last one is old.
  std::int64_t version() const { return version_; }
  void count_change() { ++version_; }
  // The optimizer's state on the device starts at zero.
  void clear_device_state();
  // Waits until nothing that was written is on its way.
  void drain();

 private:
  void allocate(std::size_t unit);

  const UnitPlan& names_;
  const StatePlan& plan_;
  LowerTiers* lower_;  // null: none in scope
  std::vector<UnitMemory> units_;
  std::int64_t version_ = 0;
};

}  // namespace zeepo
