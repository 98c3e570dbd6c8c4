#include "zeepo/train/step_side.h"

#include <cmath>

#include "zeepo/base/size.h"
#include "zeepo/device/devices.h"

namespace zeepo {

StepRates measure_steps(const RunSetup& setup, const GpuPlace& place, Communicator& communicator) {
  const TrainOptions& options = setup.options;
  const auto compute = make_cuda_stream(place.gpu);
  StepRates rates = measure_step_rates(communicator, *compute,
                                       choose_threads(options.threads, communicator.local_size()), step_work(options));
  if (options.link_bytes_per_second > 0)
    rates.link_bytes_per_second = std::min(rates.link_bytes_per_second, options.link_bytes_per_second);
  return rates;
}

nlohmann::ordered_json step_below_json(const RunPlan& plan) {
  const EngineOptions options = engine_options(plan.setup);
  if (options.placement.optimizer.on_device()) return {};
  const double beside_device =
      host_step_obstacle(plan.setup.options) == HostStepObstacle::none ? options.host_share : 0;
  nlohmann::ordered_json json{{"host_share", options.step_below_on == StepSide::host ? 1 : beside_device}};
  if (!plan.step_rates) return json;
  json["host_share_at_most"] = plan.setup.levels.host_shares.back();
  json["link_bytes_per_second"] = plan.step_rates->link_bytes_per_second;
  json["host_elements_per_second"] = plan.step_rates->host_elements_per_second;
  return json;
}

std::string step_below_text(const RunPlan& plan) {
  const EngineOptions options = engine_options(plan.setup);
  if (options.placement.optimizer.on_device()) return "";
  if (options.step_below_on == StepSide::host) return "offloaded optimizer state is stepped by the host";
  if (plan.step_rates)
    return fmt::format(
        "offloaded optimizer state is stepped by the device, or up to {:.0f}% by the host where steps wait for it: "
        "{}/s each "
        "way between them, {:.2f}e9 weights/s stepped by the host meanwhile",
        100 * plan.setup.levels.host_shares.back(), format_size(std::llround(plan.step_rates->link_bytes_per_second)),
        plan.step_rates->host_elements_per_second / 1e9);
  if (options.host_share > 0 && host_step_obstacle(plan.setup.options) == HostStepObstacle::none)
    return fmt::format(
        "offloaded optimizer state is stepped by the device, {:.0f}% of what is in host memory by the host",
        100 * options.host_share);
  const char* when = options.step_phase == StepPhase::in_backward ? ", inside the backward pass" : "";
  return fmt::format("offloaded optimizer state is stepped by the device{}", when);
}

}  // namespace zeepo
