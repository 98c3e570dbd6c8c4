// Descriptions of usual machines, in the format of plan/hardware.h.
#pragma once

#include <string_view>
#include <vector>

namespace zeepo {

struct KnownHardware {
  std::string_view name, json;
};
const std::vector<KnownHardware>& known_hardware();

}  // namespace zeepo
