// Who steps the optimizer's state, and when.
#pragma once

#include "zeepo/zero/placement.h"

namespace zeepo {

// Where optimizer state below the device is stepped: by the host, gradients going down to it; or by the device, the
// state coming up and going down again while gradients stay.
enum class StepSide { host, device };

// When shards are stepped: after the last backward pass of a step, when the norm of all gradients is known; or inside
// it, each as soon as its gradients are there, which then need not be kept. Inside nothing can be clipped or scaled.
// Stage 0 on several ranks, whose gradients are kept for all ranks' sums, is stepped after it all the same.
enum class StepPhase { after_backward, in_backward };

// In which order the gradients of the micro-batches of a step are added. global: by the number of the micro-batch over
// all ranks, so that any number of ranks gives the same bits. local: a rank alone lets the products add to the sum
// themselves, which is faster and rounds otherwise.
enum class SumOrder { global, local };

// Of one piece: at once, as soon as the step may be taken; or later, in its turn among all that are, ahead of the next
// use of its weights.
enum class SteppedBy {
  device_at_once,
  device_later,  // what lives below comes up for it
  host_later,    // in host memory; what lives in files comes there for it
  host_beside,   // in host memory, by the HostStepper, beside a device that steps the others
};

// What keeps the host from stepping any part beside a device that steps what lives below it; the first of these.
enum class HostStepBar {
  none,
  backward_pass,    // steps in it, or delayed to the next one: gradients stay no longer than their step on the device
  no_host_state,    // it steps what is in its own memory
  params_in_files,  // and all weights are where it cannot reach them
};

inline HostStepBar host_step_bar(bool steps_with_backward_pass, const Shares& params, const Shares& optimizer) {
  if (steps_with_backward_pass) return HostStepBar::backward_pass;
  if (optimizer.host <= 0) return HostStepBar::no_host_state;
  return params.nvme >= 1 ? HostStepBar::params_in_files : HostStepBar::none;
}

}  // namespace zeepo
