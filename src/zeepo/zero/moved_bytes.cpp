#include "zeepo/zero/moved_bytes.h"

#include "zeepo/tensor/device.h"
#include "zeepo/zero/collectives.h"

namespace zeepo {

MovedBytes moved_so_far(const Collectives& collectives) {
  const LowerTiers* lower = Device::current().lower;
  return {collectives.sent(), lower ? lower->carried() : LinkBytes{}};
}

}  // namespace zeepo
