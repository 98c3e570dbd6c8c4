#include "zeepo/plan/plan_curves.h"

#include "zeepo/base/error.h"
#include "zeepo/plan/count.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostSamples = 256;

const char* name_of(PlanCurve::Unit unit) {
  return unit == PlanCurve::Unit::bytes ? "bytes" : unit == PlanCurve::Unit::rate ? "rate" : "percent";
}

// The values of sweeps but the first, at a point; empty where there is one sweep.
std::string others_of(const SweepPoint& point) {
  std::string label;
  for (std::size_t i = 1; i < point.size(); ++i)
    label += fmt::format("{}{} {}", i > 1 ? ", " : "", point[i].first, point[i].second);
  return label;
}

}  // namespace

PlanCurve empty_curve(const std::vector<Sweep>& sweeps, const std::string& title, PlanCurve::Unit unit) {
  const Sweep& over = sweeps.front();
  PlanCurve curve{.title = title,
                  .x_name = over.name == "bandwidth" ? "bandwidth, GB/s a GPU" : over.name,
                  .unit = unit,
                  .xs = {},
                  .lines = {}};
  for (const std::string& value : over.values) curve.xs.push_back(number_of(over, value));
  return curve;
}

void add_lines(PlanCurve& curve, const std::string& label, const std::vector<Sweep>& sweeps,
               const CurveFigure& figure) {
  const std::vector<SweepPoint> points = points_of(sweeps);
  const std::size_t combinations = points.size() / curve.xs.size();  // of the other sweeps, which change fastest
  for (std::size_t c = 0; c < combinations; ++c) {
    const std::string others = others_of(points[c]);
    PlanCurve::Line line{others.empty() ? label : label.empty() ? others : label + ", " + others, {}};
    for (std::size_t x = 0; x < curve.xs.size(); ++x) line.values.push_back(figure(x * combinations + c));
    curve.lines.push_back(std::move(line));
  }
}

Json to_json(const PlanCurve& curve) {
  Json json{{"title", curve.title}, {"x", curve.x_name}, {"unit", name_of(curve.unit)}, {"xs", curve.xs}};
  json["lines"] = Json::array();
  for (const PlanCurve::Line& line : curve.lines) {
    Json values = Json::array();
    for (const auto& value : line.values) values.push_back(value ? Json(*value) : Json(nullptr));
    json["lines"].push_back({{"label", line.label}, {"values", std::move(values)}});
  }
  if (curve.limit) json["limit"] = {{"label", curve.limit->first}, {"value", curve.limit->second}};
  return json;
}

std::vector<PlanCurve> curves_by_batch(const Recommended& recommended, const PlanMachine& machine) {
  constexpr auto kDevice = static_cast<std::size_t>(Place::device);
  PlanCurve memory{.title = "Device memory by micro-batch",
                   .x_name = "samples a rank and micro-step",
                   .unit = PlanCurve::Unit::bytes,
                   .xs = {},
                   .lines = {{"device", {}}},
                   .limit = std::pair{"budget", static_cast<double>(recommended.budgets[kDevice])}};
  PlanCurve speed{.title = "Tokens/s by micro-batch",
                  .x_name = memory.x_name,
                  .unit = PlanCurve::Unit::rate,
                  .xs = {},
                  .lines = {{"tokens/s", {}}}};
  bool fits = true;
  for (std::int64_t samples = 1; samples <= kMostSamples && fits; samples *= 2) {
    TrainOptions options = recommended.setup.options;
    options.micro_batch = samples;
    const RunSetup setup = recommended.setup.with(std::move(options));
    const MemoryPlan plan = plan_memory(setup);
    const Recommended run = as_run(setup, recommended.rooms, machine);
    fits = run.fits;
    for (PlanCurve* curve : {&memory, &speed}) curve->xs.push_back(static_cast<double>(samples));
    memory.lines[0].values.emplace_back(static_cast<double>(plan.bytes[kDevice]));
    auto& rate = speed.lines[0].values.emplace_back();
    if (run.time) rate = run.time->tokens_per_second;
  }
  std::vector<PlanCurve> curves{std::move(memory)};
  if (machine.rates) curves.push_back(std::move(speed));
  return curves;
}

std::vector<PlanCurve> curves_of(const std::vector<Sweep>& sweeps, const std::vector<Textbook>& textbooks) {
  std::vector<PlanCurve> curves;
  const auto curve = [&](const std::string& title, PlanCurve::Unit unit) -> PlanCurve& {
    return curves.emplace_back(empty_curve(sweeps, title, unit));
  };
  const Textbook& first = textbooks.front();
  if (first.question.bytes_per_second)
    for (std::size_t i = 0; i < first.bandwidth.size(); ++i)
      add_lines(curve("Efficiency by the bandwidth of " + first.bandwidth[i].what, PlanCurve::Unit::percent), "",
                sweeps, [&](std::size_t point) { return textbooks[point].bandwidth[i].efficiency; });
  if (sweeps.front().name != "bandwidth") {
    PlanCurve& states = curve("States of a rank", PlanCurve::Unit::bytes);
    for (std::size_t stage = 0; stage < kZeroStages; ++stage)
      add_lines(states, fmt::format("stage {}", stage), sweeps, [&](std::size_t point) {
        return std::optional(static_cast<double>(textbooks[point].stages[stage].bytes.total));
      });
    if (first.activations) {
      PlanCurve& activations = curve("Activations of a node", PlanCurve::Unit::bytes);
      const auto of = [&](const char* label, std::int64_t ActivationFigures::*field) {
        add_lines(activations, label, sweeps, [&](std::size_t point) {
          return std::optional(static_cast<double>((*textbooks[point].activations).*field));
        });
      };
      of("all kept", &ActivationFigures::full_bytes_per_node);
      of("checkpoints", &ActivationFigures::checkpoint_bytes_per_node);
    }
  }
  return curves;
}

}  // namespace zeepo
