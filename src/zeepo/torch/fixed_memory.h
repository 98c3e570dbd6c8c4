// Gathered parameters at addresses that never change: those that PyTorch's tensors have been given.
//
// Bytes count in the device's tier, so that budgets and reports hold.
#pragma once

#include <map>
#include <vector>

#include "zeepo/memory/arena_tier.h"
#include "zeepo/torch/slot_memory.h"
#include "zeepo/zero/weight_stream.h"

namespace zeepo {

class FixedMemory final : public GatherMemory {
 public:
  // Ranges for the units of these sizes, of what `stream` computes on; counted in `device`. Both are borrowed.
  FixedMemory(const std::vector<std::size_t>& unit_bytes, AbsentMemory absent, Stream& stream, ArenaTier& device)
      : leases_(unit_bytes, absent, stream, device) {}

  std::byte* address(std::size_t unit) const { return leases_.slots.address(unit); }
  std::size_t slots() const { return leases_.slots.slots(); }
  Tensor take(std::size_t unit, std::int64_t elements, DType dtype) override;

 private:
  // A Block of it is one unit's slot, for as long as any tensor is on it.
  struct Leases final : Tier {
    Leases(const std::vector<std::size_t>& unit_bytes, AbsentMemory absent, Stream& stream, ArenaTier& counted_in)
        : Tier("parameters"), slots(unit_bytes, absent, stream), device(counted_in) {}
    Block allocate(std::size_t bytes, Kind kind) override;
    std::size_t free_bytes() const override { return device.free_bytes(); }
    Block lease_unit(std::size_t unit, std::size_t bytes);
    void release(std::size_t unit, std::size_t bytes) noexcept override;

    SlotMemory slots;
    ArenaTier& device;
    std::map<std::size_t, Block> counted;  // by unit
  };

  Leases leases_;
};

}  // namespace zeepo
