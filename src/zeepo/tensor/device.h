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
  LowerTiers* lower = nullptr;   // what lies below the device, if anything
  Timeline* timeline = nullptr;  // where what is done is written down, if anywhere

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

// Runs f(stream) on the current device's compute stream; a dry device runs nothing.
template <class F>
void launch(F&& f) {
  dispatch(Device::current().compute, std::forward<F>(f));
}

}  // namespace zeepo
