// One direction of copies between host memory and a device, beside the device's compute.
//
// A lane is used by one thread. A Point is taken on the thread that gives work to the compute stream, and may be waited
// for on any.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "zeepo/device/stream.h"

namespace zeepo {

// All that a stream had been given at some time. Empty: nothing to wait for.
struct Point {
  std::shared_ptr<void> event;

  // Of a dry stream with a clock.
  static Point at(double time) { return {std::make_shared<double>(time)}; }
  double simulated_time() const { return event ? *std::static_pointer_cast<double>(event) : 0; }
};
Point point_of(CpuStream&);
Point point_of(CudaStream&);
Point point_of(DryStream&);
// Work that the stream is given from now on starts when the point has been reached; the host does not wait.
void start_after(CpuStream&, const Point& point);
void start_after(CudaStream&, const Point& point);
void start_after(DryStream&, const Point& point);
// The host waits.
void wait_for(CpuStream&, const Point& point);
void wait_for(CudaStream&, const Point& point);
void wait_for(DryStream&, const Point& point);

// Bytes of host memory and of a device's, from one to the other.
struct LinkCopy {
  const void* from;
  void* to;
  std::size_t bytes;
};

class CopyLane {
 public:
  virtual ~CopyLane() = default;
  // Copies that follow start when the point has been reached.
  virtual void start_after(const Point& point) = 0;
  // Returns when all have been copied. No other lane's copies come between them for long: they are given at once.
  virtual void copy(std::span<const LinkCopy> copies) = 0;
  void copy(const void* from, void* to, std::size_t bytes) {
    const LinkCopy one{from, to, bytes};
    copy({&one, 1});
  }
};
std::unique_ptr<CopyLane> make_copy_lane(CpuStream&);
std::unique_ptr<CopyLane> make_copy_lane(CudaStream&);

}  // namespace zeepo
