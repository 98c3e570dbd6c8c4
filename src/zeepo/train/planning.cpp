// The trainer's plan of memory: what a step needs of each tier, whether it fits, and what to place where so that it
// does.
#include <algorithm>
#include <limits>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/model_directory.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

// Weights on their way out must fit too.
void read_largest(Engine& engine) {
  const auto slices = engine.slices();
  const auto largest =
      std::ranges::max_element(slices, {}, [](const WeightSlice& slice) { return slice.shape.elements(); });
  const auto elements = std::min(largest->shape.elements(), kWritePieceElements);
  std::vector<float> piece(static_cast<std::size_t>(elements));
  engine.read(largest->name, 0, piece);
}

}  // namespace

Trainer::Plan Trainer::plan_memory() {
  Session session = Session::dry(communicator_, lower_options(), options_.backend);
  EngineOptions options = engine_options();
  options.accumulation = std::min<std::int64_t>(options.accumulation, 2);  // the third is as the second
  {
    Engine engine(*model_, session.communicator(), options);
    engine.load(random_weights(options_.seed));
    session.restart_peaks();
    const auto size = static_cast<std::size_t>(options_.micro_batch * options_.seq_len);
    const Batch blank{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
    for (int step = 1; step <= 2; ++step) {  // the first is recorded; like all later ones, the second runs ahead
      for (std::int64_t m = 0; m < options.accumulation; ++m) micro_step(engine, blank, step, m);
      (void)engine.step(0);
    }
    read_largest(engine);
  }
  Plan plan{};
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    plan.peak[i] = session.peak(place);
    plan.bytes[i] = session.high_water(place);
  }
  return plan;
}

// The more of the optimizer's state can come up to the device ahead of its step, the better it hides behind the
// backward pass: the room that the plan leaves goes to it.
void Trainer::fill_device(Plan& plan, int gpu) {
  const EngineOptions options = engine_options();
  if (options.step_below_on != StepSide::device || options.placement.optimizer.on_device()) return;
  constexpr std::int64_t kBytesAnElement = 12;  // at most: the weight's remainder, two moments
  const std::int64_t room = budgets(gpu, plan)[0] - static_cast<std::int64_t>(plan.bytes[0]);
  const std::int64_t more = room / (options.piece_elements * kBytesAnElement);
  if (more <= 0) return;
  pieces_under_way_ += static_cast<int>(std::min<std::int64_t>(more, std::numeric_limits<int>::max() / 2));
  plan = plan_memory();
}

// Of each tier.
std::array<std::int64_t, kPlaces.size()> Trainer::budgets(int gpu, const Plan& plan) const {
  const int ranks = communicator_.local_size();
  return {device_budget(options_.backend, gpu, options_.device_bytes, ranks),
          options_.host_bytes > 0 ? options_.host_bytes : usable_memory_bytes() / ranks,
          options_.nvme_bytes > 0 ? options_.nvme_bytes
                                  : static_cast<std::int64_t>(plan.bytes[static_cast<std::size_t>(Place::nvme)])};
}

void Trainer::check_fits(const Plan& plan, const std::array<std::int64_t, kPlaces.size()>& budgets) const {
  const auto size = [](std::size_t bytes) { return format_size(static_cast<std::int64_t>(bytes)); };
  constexpr std::array kWaysOut{
      "lower --micro-batch or --seq-len, try --activation-checkpointing or --tile-linear, or move states away with "
      "--offload-optimizer, "
      "--offload-param or --offload-activations",
      "move states on to files with --offload-optimizer nvme, --offload-param nvme or --offload-activations nvme, or "
      "raise --memory host=",
      "give --nvme-path a larger disk, or raise --memory nvme="};
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    if (plan.bytes[i] <= static_cast<std::size_t>(budgets[i])) continue;
    throw Error("train: a step needs {} of {} memory ({}), {} more than the budget of {}; {}", size(plan.bytes[i]),
                name_of(place), describe(plan.peak[i]), size(plan.bytes[i] - static_cast<std::size_t>(budgets[i])),
                size(static_cast<std::size_t>(budgets[i])), kWaysOut[i]);
  }
}

}  // namespace zeepo
