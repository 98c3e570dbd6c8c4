// Who steps the optimizer's state, and when.
#pragma once

#include "zeepo/zero/placement.h"

namespace zeepo {

// Who steps optimizer state that is offloaded: the host, to which gradients go down; or the device, to which the state
// comes up and from which the state goes down again, while gradients stay.
enum class StepSide { host, device };

// When shards are stepped: after the last backward pass of a step, when the norm of all gradients is known; or inside
// the backward pass, each shard as soon as its gradients are reduced, which then need not be kept. Inside nothing can
// be clipped or scaled. Stage 0 on several ranks keeps its gradients until all ranks have gathered them, and cannot
// step inside.
enum class StepPhase { after_backward, in_backward };

// In which order the gradients of a step's micro-batches are summed. global: one after another by global number,
// micro-step first, then rank, in fp32, and the finished sum rounded once to the training dtype: the same bits on any
// number of ranks. local: the matrix products of a rank alone add to the fp32 sum themselves: faster, other rounding;
// on several ranks it is the global order.
enum class SumOrder { global, local };

// Who steps one piece of state, and when: at once, as soon as the step may be taken; or deferred, ahead of the next use
// of the piece's unit.
enum class SteppedBy {
  device_at_once,
  device_deferred,  // offloaded state comes up for the step
  host_deferred,    // in host memory; state in files comes there for the step
  host_beside,      // in host memory, by the HostStepper, beside a device that steps other pieces
};
inline bool is_deferred(SteppedBy by) { return by != SteppedBy::device_at_once; }

// What keeps the host from stepping any piece beside a device that steps offloaded state; the first of these.
enum class HostStepObstacle {
  none,
  backward_pass,    // steps in the backward pass: gradients stay on the device no longer than until their step
  no_host_state,    // the host steps what is in host memory, and no optimizer state is
  params_in_files,  // the host cannot reach the weights
};

inline HostStepObstacle host_step_obstacle(StepPhase phase, const Shares& params, const Shares& optimizer) {
  if (phase == StepPhase::in_backward) return HostStepObstacle::backward_pass;
  if (optimizer.host <= 0) return HostStepObstacle::no_host_state;
  return params.nvme >= 1 ? HostStepObstacle::params_in_files : HostStepObstacle::none;
}

}  // namespace zeepo
