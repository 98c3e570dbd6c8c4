// Kernels on every instruction set that this machine has and they are compiled for.
#pragma once

#include <hwy/targets.h>

#include <cstdint>

namespace zeepo {

// f(name) with that instruction set chosen.
template <class F>
void for_each_target(const F& f) {
  const std::int64_t all = hwy::SupportedTargets();
  for (std::int64_t left = all; left != 0; left &= left - 1) {
    hwy::SetSupportedTargetsForTest(left & -left);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    f(hwy::TargetName(left & -left));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace zeepo
