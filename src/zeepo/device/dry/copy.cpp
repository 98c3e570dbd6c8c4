// Copies that take their time, and points of a clock.
#include "zeepo/device/copy.h"

#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"

namespace zeepo {
namespace {

void take(DryStream& stream, std::size_t bytes, double rate) {
  stream.time()->compute(static_cast<double>(bytes) / rate);
}

}  // namespace

void copy_to_device(DryStream& s, const void*, void*, std::size_t bytes) {
  take(s, bytes, s.time()->rates().to_device);
}
void upload(DryStream& s, const void*, void*, std::size_t bytes) { take(s, bytes, s.time()->rates().to_device); }
void copy_to_host(DryStream& s, const void*, void*, std::size_t bytes) { take(s, bytes, s.time()->rates().to_host); }

Point point_of(DryStream& s) { return Point::at(s.time()->computed()); }
void start_after(DryStream& s, const Point& point) { s.time()->compute_after(point.simulated_time()); }
void wait_for(DryStream& s, const Point& point) { s.time()->wait_until(point.simulated_time()); }

MemoryRange transfer_memory(DryStream&, std::string_view tier, std::size_t bytes) { return host_memory(tier, bytes); }

}  // namespace zeepo
