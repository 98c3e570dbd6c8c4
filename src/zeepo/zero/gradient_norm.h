// The norm of a step's gradients, the factor that clips them, the loss scale and the loss.
//
// Each unit's squares are summed when its gradients are complete; finish() brings the ranks' parts together and leaves
// a StepControl in device memory, so that the step's kernels wait for no host. The host gets a copy, and the losses of
// all micro-batches, when it asks. Both sums have one order on any number of ranks: the norm's that of the units'
// elements (kernels/gradient_norm.h), the loss's that of the micro-batches' global numbers.
#pragma once

#include <cstdint>
#include <vector>

#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"
#include "zeepo/kernels/gradient_norm.h"
#include "zeepo/tensor/tensor.h"
#include "zeepo/zero/collectives.h"
#include "zeepo/zero/norm_layout.h"
#include "zeepo/zero/state_plan.h"

namespace zeepo {

class GradientNorm {
 public:
  GradientNorm(const StatePlan& plan, Collectives& collectives);

  // What a backward pass starts from.
  float loss_gradient() const { return loss_scale_.value() * mean_; }
  void add_loss(ConstView loss, const MicroStep& micro_step);
  // This rank's part of the unit's gradients, which are complete.
  void measure(std::size_t unit, const Tensor& gradients);
  // Of one unit, for its step inside the backward pass: whether this rank's part is finite. Nothing is clipped.
  void finish_unit(std::size_t unit);
  // Of all units and ranks. The control and the loss go to the host, ahead of what the stream is given next. This
  // rank's note goes with the losses.
  void finish(float note = 0);
  // The step is not taken.
  void abandon() { finished_ahead_ = false; }
  // Ahead of finish(), which then does nothing: the same, clipped to `clip` instead of the options', of gradients that
  // are `scale` times as large besides the loss scale. The norm without both.
  float finish_clipped_to(float clip, float scale);
  // Waits until the control, the loss and the ranks' notes are on the host.
  const StepControl& take();
  // For OnNan::skip, before anything is stepped: a loss that is not finite skips the step, as gradients do.
  void hold_back();
  // Those that are not finite, after take().
  std::vector<MicroBatchPlace> bad_losses() const;

  ConstView control() const { return control_.view(); }
  ConstView unit_control(std::size_t unit) const { return unit_controls_.part(unit_at(unit), {kControlSize}).view(); }
  StepControl unit_control_on_host(std::size_t unit) const;
  const StepControl& on_host() const { return host_control_; }
  float loss() const { return host_loss_; }
  float note() const { return host_note_; }  // the largest of all ranks'

  const LossScale& loss_scale() const { return loss_scale_; }
  void restore_loss_scale(const LossScale::State& saved) {
    if (loss_scale_.in_use()) loss_scale_.restore(saved);
  }
  void update_loss_scale(bool overflowed) { loss_scale_.update(overflowed); }

 private:
  static constexpr std::int64_t kControlSize = sizeof(StepControl) / sizeof(float);
  static constexpr std::int64_t kLosses = 64;  // of a rank that are sent together; the last ones after its note
  static std::int64_t unit_at(std::size_t unit) { return static_cast<std::int64_t>(unit) * kControlSize; }
  Tensor own_nodes(std::size_t unit) const;
  // The `losses` from `begin` on that are sent together, and how many notes before them: one or none.
  struct Sent {
    std::int64_t begin, losses, notes;
    std::int64_t numbers() const { return notes + losses; }
  };
  Sent sent_with(std::int64_t micro_step) const;
  float loss_of(const MicroBatchPlace& place) const;
  void send_losses(std::int64_t end);
  void finish(float note, float clip, float scale);
  float* host_losses() const { return reinterpret_cast<float*>(host_memory_.data()) + kControlSize; }

  const StatePlan& plan_;
  Collectives& collectives_;
  float mean_;
  LossScale loss_scale_;
  bool finished_ahead_ = false;  // of this step
  NormLayout layout_;
  Tensor nodes_, table_, blocks_, control_;
  Tensor own_losses_, losses_;  // this rank's note and kLosses; as many of each rank, one rank after another
  float own_note_ = 0;          // as own_losses_ has it
  Tensor unit_controls_;        // a StepControl a unit, where units are stepped in the backward pass
  // The last step's on the host, and the memory that they come through.
  StepControl host_control_{};
  float host_loss_ = 0, host_note_ = 0;
  MemoryRange host_memory_;  // the control; then kLosses of each rank, and so on; the last ones after its note
  Point sent_;
};

}  // namespace zeepo
