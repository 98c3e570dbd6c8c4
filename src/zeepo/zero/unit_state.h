// What a rank keeps of one unit, and what it holds of it for the moment. Stage and placement decide what is kept whole
// and what as this rank's shard, and where; nothing else depends on them.
#pragma once

#include <optional>
#include <vector>

#include "zeepo/device/worker.h"
#include "zeepo/optim/optimizer.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/shard.h"
#include "zeepo/zero/step_side.h"

namespace zeepo {

// A flat array over an extent of the unit on the device: all of it, or a shard.
struct FlatPart {
  Tensor tensor;
  Extent extent;

  bool defined() const { return tensor.defined(); }
  // The part of it that covers `wanted`, which must lie within the extent.
  Tensor of(const Extent& wanted) const;
};

// Zeros of the current device.
FlatPart zeros(const Extent& extent, DType dtype, Kind kind);

// Elements [begin, begin + count) of a flat view.
View part_of(const View& flat, std::int64_t begin, std::int64_t count);

// The optimizer's state of consecutive weights: arrays one after another in one piece of memory.
struct StateViews {
  View param;  // empty where the weights are elsewhere
  View low;    // what `param` lacks of the fp32 weight, see kernels/optimizer.h; empty in fp32
  std::vector<Moment> moments;

  // Of moments, `begin` must be a multiple of kMomentBlock.
  StateViews part(std::int64_t begin, std::int64_t count) const;
};

struct StateLayout {
  DType dtype = DType::f32;  // of the parameters
  bool holds_param = false;
  int moments = 0;
  MomentType moment_type = MomentType::fp32;

  std::optional<DType> low() const;
  std::size_t bytes(std::int64_t elements) const;  // a multiple of 2
  // Of memory that starts at `memory`; null in a dry pass.
  StateViews views(std::byte* memory, std::int64_t elements) const;
};

// A part of what this rank steps. Its state lives in one place; on the device as `device`, else as `block`.
struct StatePiece {
  Extent extent;
  Place place = Place::device;
  // It holds a copy of the weights where they live on the other side of the link.
  StateLayout layout = {};
  SteppedBy stepped_by = SteppedBy::device_at_once;
  Tensor device = {}, device_grads = {};
  Block block = {},
        grads_block = {};  // where the unit straddles places or lives below, gradients stay with their piece
  Completion written = {}, grads_written = {};  // of what was last written to each

  bool stepped_later() const { return stepped_by != SteppedBy::device_at_once; }
};

struct UnitState {
  Extent whole, own;  // own: this rank's shard
  Extent stepped;     // what this rank steps: where it has the optimizer's state
  bool trained = false;

  FlatPart params;     // the training dtype; or, where they live below the device, ...
  Block params_block;  // ... this rank's shard of them
  Place params_place = Place::device;
  bool params_whole = false;          // kept between uses, not gathered for them
  FlatPart grads;                     // reduced and summed over micro-steps, unless they go to where the host steps
  std::vector<StatePiece> pieces;     // of `stepped`, in order
  FlatPart local_sum;                 // fp32, of this rank's micro-steps, where they are reduced last
  std::int64_t first_norm_block = 0;  // of this rank's
  std::int64_t first_weight = 0;      // of the unit, among all of the model

  Tensor gathered;       // all parameters, while they are here; the kept ones themselves where kept whole
  Completion arriving;   // of this rank's shard of `gathered`, from below
  Collecting gathering;  // of `gathered`
  std::vector<Completion> parameters_written;  // below the device, or from there to `params`
  Tensor pending;                              // gradients of this micro-step, not yet reduced; or `grads`
  Tensor fresh;                // this rank's shard of gradients that are not kept, until they are stepped
  Collecting grads_gathering;  // of all of `grads`, where every rank steps all of them
  int open_visits = 0;         // forward visits whose backward visit is to come
  bool reduced = false;        // in this micro-step
};

}  // namespace zeepo
