#include "zeepo/tensor/device.h"

#include "zeepo/base/error.h"

namespace zeepo {
namespace {
thread_local Device* current_device = nullptr;
}

Device& Device::current() {
  if (!current_device) throw Error("tensor: no device in scope; make a Session or a DeviceScope first");
  return *current_device;
}

DeviceScope::DeviceScope(Stream& compute, Tier& memory, LowerTiers* lower, Timeline* timeline)
    : device_{compute, memory, lower, timeline}, outer_(current_device) {
  current_device = &device_;
}

DeviceScope::~DeviceScope() { current_device = outer_; }

}  // namespace zeepo
