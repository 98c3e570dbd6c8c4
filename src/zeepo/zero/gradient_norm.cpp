#include "zeepo/zero/gradient_norm.h"

#include <algorithm>
#include <cstring>

#include "zeepo/device/copy.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

GradientNorm::GradientNorm(const StatePlan& plan, Collectives& collectives)
    : plan_(plan),
      collectives_(collectives),
      mean_(1.0f / static_cast<float>(plan.options.accumulation * plan.ranks.size)) {
  if (plan.options.use == Use::infer) return;
  if (plan.options.dtype == DType::f16) loss_scale_ = LossScale(plan.options.loss_scale);
  std::int64_t blocks = 0;
  for (const auto& states : plan.units) {
    first_block_.push_back(blocks);
    if (states.trained) blocks += norm_blocks(states.own.elements());
  }
  loss_ = Tensor({1}, DType::f32, Kind::working);
  blocks_ = Tensor({plan.ranks.size * std::max<std::int64_t>(blocks, 1)}, DType::f32, Kind::working);
  control_ = Tensor({kControlSize}, DType::f32, Kind::working);
  launch([&](auto& s) { control_memory_ = transfer_memory(s, "host", sizeof(StepControl) + sizeof(float)); });
  if (plan.steps_in_backward())
    unit_controls_ = Tensor({unit_at(plan.units.size())}, DType::f32, Kind::working);
}

void GradientNorm::add_loss(ConstView loss, const MicroStep& micro_step) {
  launch([&](auto& s) { sum(s, loss, mean_, loss_.view(), !micro_step.first()); });
}

Tensor GradientNorm::own_blocks(std::size_t unit) const {
  const std::int64_t blocks = blocks_.elements() / plan_.ranks.size;
  return blocks_.part(plan_.ranks.rank * blocks + first_block_[unit],
                      {norm_blocks(plan_.units[unit].own.elements())});
}

void GradientNorm::measure(std::size_t unit, const Tensor& gradients) {
  const View blocks = own_blocks(unit).view();
  launch([&](auto& s) { sum_squares(s, gradients.view(), blocks); });
}

void GradientNorm::finish_unit(std::size_t unit) {
  const View blocks = own_blocks(unit).view(), control = unit_controls_.part(unit_at(unit), {kControlSize}).view();
  launch([&](auto& s) { finish_norm(s, blocks, 1, 0, control); });
}

void GradientNorm::finish() {
  collectives_.all_reduce(loss_.view(), {"loss", 0});
  const std::int64_t blocks = blocks_.elements() / plan_.ranks.size;
  const Tensor own = blocks_.part(plan_.ranks.rank * blocks, {blocks});
  Collecting gathered = collectives_.all_gather(own.view(), blocks_.view(), {"gradient norms", 0});
  collectives_.wait(gathered);
  launch([&](auto& s) {
    finish_norm(s, blocks_.view(), loss_scale_.value(), plan_.options.clip, control_.view());
    std::byte* const to = control_memory_.data();
    copy_to_host(s, control_.view().data, to, sizeof(StepControl));
    copy_to_host(s, loss_.view().data, to + sizeof(StepControl), sizeof(float));
    control_sent_ = point_of(s);
  });
}

const StepControl& GradientNorm::take() {
  launch([&](auto& s) {
    wait_for(s, control_sent_);
    const std::byte* const from = control_memory_.data();
    std::memcpy(&host_control_, from, sizeof(StepControl));
    std::memcpy(&host_loss_, from + sizeof(StepControl), sizeof(float));
  });
  return host_control_;
}

StepControl GradientNorm::unit_control_on_host(std::size_t unit) const {
  StepControl control{};
  const auto values = unit_controls_.part(unit_at(unit), {kControlSize}).to_floats();
  std::memcpy(&control, values.data(), sizeof control);
  return control;
}

}  // namespace zeepo
