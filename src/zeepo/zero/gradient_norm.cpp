#include "zeepo/zero/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <utility>

#include "zeepo/device/copy.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/softmax.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

GradientNorm::GradientNorm(const StatePlan& plan, Collectives& collectives)
    : plan_(plan),
      collectives_(collectives),
      mean_(1.0f / static_cast<float>(plan.options.accumulation * plan.ranks.size)) {
  if (plan.options.use == Use::infer) return;
  if (plan.options.dtype == DType::f16) loss_scale_ = LossScale(plan.options.loss_scale);
  layout_ = norm_layout(plan);
  nodes_ = Tensor({plan.ranks.size * layout_.rank_nodes}, DType::f32, Kind::working);
  const Shape table{layout_.table_elements};
  table_ = Device::current().compute.dry()
               ? Tensor(table, DType::i32, Kind::working)
               : Tensor::from<std::int32_t>(norm_table(plan, layout_), table, Kind::working);
  blocks_ = Tensor({std::max<std::int64_t>(layout_.blocks, 1)}, DType::f32, Kind::working);
  control_ = Tensor({kControlSize}, DType::f32, Kind::working);
  own_losses_ = Tensor({kLosses + 1}, DType::f32, Kind::working);
  losses_ = Tensor({plan.ranks.size * (kLosses + 1)}, DType::f32, Kind::working);
  const auto numbers = static_cast<std::size_t>((plan.options.accumulation + 1) * plan.ranks.size);
  launch([&](auto& s) {
    fill(s, nodes_.view(), 0);
    fill(s, own_losses_.view(), 0);
    host_memory_ = transfer_memory(s, "host", sizeof(StepControl) + numbers * sizeof(float));
  });
  if (plan.steps_in_backward()) unit_controls_ = Tensor({unit_at(plan.units.size())}, DType::f32, Kind::working);
}

void GradientNorm::add_loss(ConstView loss, const MicroStep& micro_step) {
  const std::int64_t slot = micro_step.number % kLosses;
  if (slot == 0 && !micro_step.first()) send_losses(micro_step.number);
  const View to = own_losses_.part(1 + slot, {1}).view();
  launch([&](auto& s) { sum(s, loss, 1, to, false); });
}

GradientNorm::Sent GradientNorm::sent_with(std::int64_t micro_step) const {
  const std::int64_t begin = micro_step / kLosses * kLosses, left = plan_.options.accumulation - begin;
  return {begin, std::min(kLosses, left), left <= kLosses ? 1 : 0};
}

// Those of all ranks since they were last sent, up to micro-step `end`, go to the host.
void GradientNorm::send_losses(std::int64_t end) {
  const Sent sent = sent_with(end - 1);
  const View own = own_losses_.part(1 - sent.notes, {sent.numbers()}).view();
  View all = own;
  if (!plan_.ranks.alone) {
    all = losses_.part(0, {sent.numbers() * plan_.ranks.size}).view();
    PendingCollective gathered = collectives_.all_gather(own, all, {"losses", 0});
    collectives_.wait(gathered);
  }
  launch([&](auto& s) { copy_to_host(s, all.data, host_losses() + sent.begin * plan_.ranks.size, all.bytes()); });
}

Tensor GradientNorm::own_nodes(std::size_t unit) const {
  return nodes_.part(plan_.ranks.rank * layout_.rank_nodes + layout_.first[unit], {layout_.count[unit]});
}

void GradientNorm::measure(std::size_t unit, const Tensor& gradients) {
  const View nodes = own_nodes(unit).view();
  const std::int64_t begin = plan_.units[unit].own.begin;
  launch([&](auto& s) { sum_squares(s, gradients.view(), begin, nodes); });
}

void GradientNorm::finish_unit(std::size_t unit) {
  const View nodes = own_nodes(unit).view(), control = unit_controls_.part(unit_at(unit), {kControlSize}).view();
  launch([&](auto& s) { finish_norm(s, nodes, 1, 0, control); });
}

void GradientNorm::finish(float note) {
  if (!std::exchange(finished_ahead_, false)) finish(note, plan_.options.clip, 1);
}

float GradientNorm::finish_clipped_to(float clip, float scale) {
  finish(0, clip, scale);
  finished_ahead_ = true;
  return take().norm;
}

void GradientNorm::finish(float note, float clip, float scale) {
  if (note != own_note_) {
    const View to = own_losses_.part(0, {1}).view();
    launch([&](auto& s) { fill(s, to, note); });
    own_note_ = note;
  }
  send_losses(plan_.options.accumulation);
  const Tensor own = nodes_.part(plan_.ranks.rank * layout_.rank_nodes, {layout_.rank_nodes});
  PendingCollective gathered = collectives_.all_gather(own.view(), nodes_.view(), {"gradient norms", 0});
  collectives_.wait(gathered);
  const View blocks = blocks_.part(0, {layout_.blocks}).view();
  launch([&](auto& s) {
    merge_norm_nodes(s, nodes_.view(), table_.view(), blocks);
    finish_norm(s, blocks, loss_scale_.value() * scale, clip, control_.view());
    copy_to_host(s, control_.view().data, host_memory_.data(), sizeof(StepControl));
    sent_ = point_of(s);
  });
}

const StepControl& GradientNorm::take() {
  launch([&](auto& s) {
    wait_for(s, sent_);
    std::memcpy(&host_control_, host_memory_.data(), sizeof(StepControl));
    host_loss_ = host_note_ = 0;
    const std::int64_t ranks = plan_.ranks.size;
    for (std::int64_t m = 0; m < plan_.options.accumulation; ++m) {
      const Sent sent = sent_with(m);
      for (int rank = 0; rank < ranks; ++rank) {
        host_loss_ = static_cast<float>(double{host_loss_} + double{loss_of({m, rank})} * double{mean_});
        if (sent.notes == 1)
          host_note_ = std::max(host_note_, host_losses()[sent.begin * ranks + rank * sent.numbers()]);
      }
    }
    if (plan_.options.on_nan == OnNan::skip && !std::isfinite(host_loss_)) host_control_.skip = 1;
  });
  return host_control_;
}

void GradientNorm::hold_back() {
  if (take().skip == 0) return;
  constexpr std::int64_t kSkip = offsetof(StepControl, skip) / sizeof(float);
  const View skip = control_.part(kSkip, {1}).view();
  launch([&](auto& s) { fill(s, skip, 1); });
}

float GradientNorm::loss_of(const MicroBatchPlace& place) const {
  const Sent sent = sent_with(place.micro_step);
  return host_losses()[sent.begin * plan_.ranks.size + place.rank * sent.numbers() + sent.notes + place.micro_step -
                       sent.begin];
}

std::vector<MicroBatchPlace> GradientNorm::bad_losses() const {
  std::vector<MicroBatchPlace> bad;
  for (std::int64_t m = 0; m < plan_.options.accumulation; ++m)
    for (int rank = 0; rank < plan_.ranks.size; ++rank)
      if (!std::isfinite(loss_of({m, rank}))) bad.push_back({m, rank});
  return bad;
}

StepControl GradientNorm::unit_control_on_host(std::size_t unit) const {
  StepControl control{};
  const auto values = unit_controls_.part(unit_at(unit), {kControlSize}).to_floats();
  std::memcpy(&control, values.data(), sizeof control);
  return control;
}

}  // namespace zeepo
