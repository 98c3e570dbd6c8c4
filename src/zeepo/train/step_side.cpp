// The trainer's choice of who steps the optimizer's state that lives below the device: measured before a run, tuned in
// its first steps, and said in its plan.
#include <cmath>

#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"
#include "zeepo/device/devices.h"
#include "zeepo/train/trainer.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {

bool Trainer::tunes_host_share() const {
  constexpr std::int64_t kLeastSteps = 12;  // with fewer, what is gained is less than what turning to it takes
  return room_to_probe_ && options_.tune.host_share && !options_.host_step_share && options_.backend == Backend::cuda &&
         options_.steps >= kLeastSteps && host_step_obstacle(options_) == HostStepObstacle::none &&
         !options_.placement.optimizer.in_files() && !options_.placement.params.in_files() &&
         step_work().through_device() > step_work().to_host();
}

bool Trainer::has_room_to_probe(const Plan& plan) const {
  const PlaceBytes budgets = this->budgets(plan);
  bool fits = free_memory_bytes() / communicator_.local_size() >= probe_bytes(step_work());
  for (std::size_t i = 0; i < kPlaces.size(); ++i) fits = fits && plan.bytes[i] <= budgets[i];
  for (const auto& text : gather_texts(communicator_, fits ? "fits" : "")) fits = fits && !text.empty();
  return fits;
}

StepWork Trainer::step_work() const {
  return {.dtype = options_.dtype,
          .grads = options_.grad_accum > 1 ? DType::f32 : options_.dtype,
          .optimizer = options_.optimizer,
          .params_on_device = options_.placement.params.on_device()};
}

// Before the run's memory is taken.
void Trainer::probe_steps() {
  if (!tunes_host_share()) return;
  const auto compute = make_cuda_stream(place_.gpu);
  step_rates_ = measure_step_rates(communicator_, *compute,
                                   choose_threads(options_.threads, communicator_.local_size()), step_work());
  if (options_.link_bytes_per_second > 0)
    step_rates_->link_bytes_per_second = std::min(step_rates_->link_bytes_per_second, options_.link_bytes_per_second);
  range_.host_shares = {0};
  if (const double most = balanced_share(*step_rates_, step_work()); most > 0) range_.host_shares.push_back(most);
}

void Trainer::propose_host_share(Tuner& tuner, const ModelEngine& engine, double waited_seconds) const {
  if (!step_rates_) return;
  const double elements = static_cast<double>(parameter_count(engine.units())) * options_.placement.optimizer.host /
                          static_cast<double>(communicator_.size());
  tuner.propose_host_share(host_share(*step_rates_, step_work(), waited_seconds, elements));
}

nlohmann::ordered_json Trainer::step_below_json() const {
  const EngineOptions options = engine_options();
  const double beside_device = host_step_obstacle(options_) == HostStepObstacle::none ? options.host_share : 0;
  nlohmann::ordered_json json{{"host_share", options.step_below_on == StepSide::host ? 1 : beside_device}};
  if (!step_rates_) return json;
  json["host_share_at_most"] = range_.host_shares.back();
  json["link_bytes_per_second"] = step_rates_->link_bytes_per_second;
  json["host_elements_per_second"] = step_rates_->host_elements_per_second;
  return json;
}

std::string Trainer::step_below_text() const {
  const EngineOptions options = engine_options();
  if (options.placement.optimizer.on_device()) return "";
  if (options.step_below_on == StepSide::host) return "what lives below the device is stepped by the host";
  if (step_rates_)
    return fmt::format(
        "what lives below the device is stepped there, or up to {:.0f}% by the host where steps wait for it: {}/s each "
        "way between them, {:.2f}e9 weights/s stepped by the host meanwhile",
        100 * range_.host_shares.back(), format_size(std::llround(step_rates_->link_bytes_per_second)),
        step_rates_->host_elements_per_second / 1e9);
  if (options.host_share > 0 && host_step_obstacle(options_) == HostStepObstacle::none)
    return fmt::format("what lives below the device is stepped there, {:.0f}% of what is in host memory by the host",
                       100 * options.host_share);
  const char* when = options.step_phase == StepPhase::in_backward ? ", inside the backward pass" : "";
  return fmt::format("what lives below the device is stepped there{}", when);
}

}  // namespace zeepo
