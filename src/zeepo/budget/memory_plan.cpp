#include "zeepo/budget/memory_plan.h"

#include <algorithm>

namespace zeepo {

bool MemoryPlan::fits(const PlaceBytes& budgets) const {
  return std::ranges::equal(bytes, budgets, [](std::int64_t needed, std::int64_t there) { return needed <= there; });
}

MemoryPlan used_by(const Session& session) {
  MemoryPlan plan{};
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    plan.peak[i] = session.peak(place);
    plan.bytes[i] = static_cast<std::int64_t>(session.high_water(place));
  }
  return plan;
}

std::int64_t staging_bytes(std::int64_t host_bytes) {
  constexpr std::int64_t kUsual = 4 << 20, kBuffers = 4;
  if (host_bytes <= 0) return kUsual;
  return std::clamp<std::int64_t>(host_bytes / 4 / kBuffers, SwapFile::kPageBytes, kUsual);
}

}  // namespace zeepo
