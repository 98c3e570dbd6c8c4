// How parameters, gradients and optimizer state lie in memory: flat arrays over an extent of a unit.
#pragma once

#include <optional>
#include <vector>

#include "zeepo/optim/optimizer.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/zero/shard.h"

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
  View param;      // empty where the weights are elsewhere
  View remainder;  // what `param` lacks of the fp32 weight, see kernels/optimizer.h; empty in fp32
  std::vector<Moment> moments;

  // Of moments, `begin` must be a multiple of kMomentBlock.
  StateViews part(std::int64_t begin, std::int64_t count) const;
};

// What keeps the rest of an fp32 weight beside a parameter of this dtype; nothing in fp32.
std::optional<DType> remainder_dtype(DType dtype);

struct StateLayout {
  DType dtype = DType::f32;  // of the parameters
  bool holds_param = false;
  int moments = 0;
  MomentType moment_type = MomentType::fp32;

  std::optional<DType> remainder() const { return remainder_dtype(dtype); }
  std::size_t bytes(std::int64_t elements) const;  // a multiple of 2
  // Of memory that starts at `memory`; null in a dry pass.
  StateViews views(std::byte* memory, std::int64_t elements) const;
};

}  // namespace zeepo
