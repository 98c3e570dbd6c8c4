#include "zeepo/device/copy_lane.h"

#include <cstring>

namespace zeepo {
namespace {

class CpuLane final : public CopyLane {
 public:
  void start_after(const Point&) override {}  // a CPU's stream is never behind
  void copy(std::span<const LinkCopy> copies) override {
    for (const LinkCopy& one : copies) std::memcpy(one.to, one.from, one.bytes);
  }
};

}  // namespace

Point point_of(CpuStream&) { return {}; }
void start_after(CpuStream&, const Point&) {}  // all that a CPU does is done when the point is taken
void wait_for(CpuStream&, const Point&) {}
std::unique_ptr<CopyLane> make_copy_lane(CpuStream&) { return std::make_unique<CpuLane>(); }

}  // namespace zeepo
