// What a rank keeps of one unit, and what it holds of it for the moment. The stage decides what is kept whole and what
// as this rank's shard; nothing else depends on it.
#pragma once

#include <vector>

#include "zeepo/device/worker.h"
#include "zeepo/kernels/optimizer.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/zero/shard.h"

namespace zeepo {

// A flat array over an extent of the unit: all of it, or a shard.
struct FlatPart {
  Tensor tensor;
  Extent extent;

  bool defined() const { return tensor.defined(); }
  // The part of it that covers `wanted`, which must lie within the extent.
  Tensor of(const Extent& wanted) const;
};

// Zeros of the current device.
FlatPart zeros(const Extent& extent, DType dtype, Kind kind);

struct UnitState {
  Extent whole, own;              // own: this rank's shard
  Extent stepped;                 // what this rank steps: where it has the optimizer's state
  FlatPart params;                // the training dtype
  FlatPart low;                   // what `params` lacks of the fp32 weight, see kernels/optimizer.h
  FlatPart grads;                 // reduced and summed over micro-steps
  std::vector<FlatPart> moments;  // fp32
  FlatPart local_sum;             // fp32, of this rank's micro-steps, where they are reduced last

  Tensor gathered;             // all parameters, while they are here; the kept ones themselves where kept whole
  Completion gathering;        // of `gathered`
  Tensor pending;              // gradients of this micro-step, not yet reduced
  Completion grads_gathering;  // of all of `grads`, where every rank steps all of them
  int open_visits = 0;         // forward visits whose backward visit is to come
  bool reduced = false;        // in this micro-step

  bool params_whole() const { return params.extent == whole; }
  Weights weights(const Extent& extent) const;
};

}  // namespace zeepo
