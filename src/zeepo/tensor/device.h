// Where tensors of this thread live and which stream computes them. Each rank is one thread with one Device in scope.
#pragma once

#include "zeepo/device/stream.h"
#include "zeepo/memory/tier.h"

namespace zeepo {

class LowerTiers;
class Timeline;

struct Device {
  Stream& compute;
  Tier& memory;
  LowerTiers* lower = nullptr;   // host memory and files to offload to, if any
  Timeline* timeline = nullptr;  // where what is done is written down, if anywhere
  bool launching = false;        // in launch(): no memory may be taken

  // The innermost DeviceScope of this thread. Throws Error when there is none.
  static Device& current();
};

class DeviceScope {
 public:
  DeviceScope(Stream& compute, Tier& memory, LowerTiers* lower = nullptr, Timeline* timeline = nullptr);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device device_;
  Device* outer_;
};

// Runs f(stream) on the current device's compute stream; a dry device runs nothing, or counts the time (compute_on). So
// that a dry pass takes all the memory that a real one does, f asks for no saved value, and makes no tensor: that
// throws Error.
template <class F>
void launch(F&& f) {
  Device& device = Device::current();
  struct Launching {
    explicit Launching(bool& flag) : on(flag) { on = true; }
    ~Launching() { on = false; }
    bool& on;
  } const launching(device.launching);
  compute_on(device.compute, std::forward<F>(f));
}

}  // namespace zeepo
