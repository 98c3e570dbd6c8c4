#include "zeepo/metrics/explained_run.h"

#include <array>
#include <cmath>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/metrics/figure_text.h"

namespace zeepo {
namespace {

constexpr std::array kTiers{"device", "host", "nvme"};
constexpr std::array kKinds{"params", "grads", "optimizer", "activations", "working", "total"};
constexpr double kWorthTelling = 0.05;  // of the time, that something is waited for; of a budget, that is free

struct MemoryLine {
  const char *tier, *kind;
  double planned, held;
};

struct Explanation {
  std::vector<MemoryLine> memory;  // what is planned or held at all
  double seconds_per_step;         // the median: first steps warm up, and are no part of a prediction
  std::vector<std::pair<std::string, double>> stalls;  // shares of the time
  double rest = 1;                                     // compute, and what nothing hides
  std::vector<RunFigure> moved;                        // bytes a step, of all ranks together
  std::vector<std::string> advice;
};

double free_share(const RunDigest& run, const char* tier) {
  const double budget = number_in(object_in(run.plan(), tier), "budget_bytes");
  const double held = number_in(object_in(run.plan(), tier), "arena_bytes");
  return budget > 0 && held >= 0 ? 1 - held / budget : 0;
}

std::string free_text(const RunDigest& run, const char* tier) {
  const Event& of_tier = object_in(run.plan(), tier);
  return bytes_text(number_in(of_tier, "budget_bytes") - number_in(of_tier, "arena_bytes"));
}

bool below_device(const RunDigest& run, const char* what, const char* where) {
  return number_in(object_in(object_in(run.plan(), "placement"), what), where) > 0;
}

// What would shorten the wait for this.
std::string way_to_wait_less(const RunDigest& run, const std::string& kind) {
  const bool offloads_params = below_device(run, "params", "host") || below_device(run, "params", "nvme");
  const char* more_work = "a larger --micro-batch or --grad-accum gives transfers more compute to hide behind";
  if (kind == "host" && free_share(run, "device") > kWorthTelling)
    return fmt::format("{} of the device's budget is free: offload less, as --placement auto does, or raise --prefetch",
                       free_text(run, "device"));
  if (kind == "host")
    return std::string(more_work) + (offloads_params ? "; --offload-param with a smaller share moves less" : "");
  if (kind == "nvme" && free_share(run, "host") > kWorthTelling)
    return fmt::format("{} of host memory's budget is free: keep more there, as --placement auto does",
                       free_text(run, "host"));
  if (kind == "nvme") return std::string("several --nvme-path on disks of their own add up; ") + more_work;
  if (kind == "gather") {
    if (number_in(run.plan(), "stage") >= 3 && free_share(run, "device") > 0.3)
      return fmt::format("{} of the device's budget is free: --stage 2 sends a third less where all parameters fit",
                         free_text(run, "device"));
    return std::string("the links between ranks, or a slower rank, hold up the step: ") + more_work;
  }
  if (kind == "step") return "--grad-accum makes steps of the optimizer rarer; --step-below shares them with the host";
  return more_work;
}

std::vector<std::string> advice_for(const RunDigest& run, const Explanation& told) {
  std::vector<std::string> advice;
  for (const auto& [kind, share] : told.stalls)
    if (share > kWorthTelling)
      advice.push_back(fmt::format("{:.0f}% of the time waits for {}: {}", 100 * share,
                                   kind == "gather" ? "other ranks"
                                   : kind == "step" ? "the optimizer's step"
                                                    : kind + (kind == "host" ? " memory" : ""),
                                   way_to_wait_less(run, kind)));
  const Event& placement = object_in(run.plan(), "placement");
  const auto recomputes = placement.find("activation_checkpointing");
  if (recomputes != placement.end() && *recomputes == true && free_share(run, "device") > 0.3)
    advice.push_back(
        fmt::format("activations are computed twice, and {} of the device's budget is free: leave "
                    "--activation-checkpointing out where zeepo plan says that it fits",
                    free_text(run, "device")));
  if (advice.empty()) advice.emplace_back("nothing is waited for: compute bounds the step");
  return advice;
}

Explanation explain(const RunDigest& run) {
  if (!run.plan().is_object()) throw Error("the log has no plan: it is not that of a run of zeepo train");
  if (run.steps() == 0) throw Error("the log has no step: there is nothing to explain yet");
  Explanation told;
  for (const char* tier : kTiers) {
    const Event& planned = object_in(object_in(run.plan(), tier), "bytes");
    for (const char* kind : kKinds) {
      const MemoryLine line{tier, kind, number_in(planned, kind), run.peak_bytes(tier, kind)};
      if (line.planned > 0 || line.held > 0) told.memory.push_back(line);
    }
  }
  told.seconds_per_step = run.median_seconds();
  for (const auto& [name, seconds] : run.stalls()) {
    const double share = run.seconds() > 0 ? seconds / run.seconds() : 0;
    told.stalls.emplace_back(text_in({{"name", name}}, "name"), share);
    told.rest -= share;
  }
  for (const RunFigure& figure : run.figures())
    for (const char* group : {"comm_bytes/", "link_bytes/", "io_bytes/"})
      if (figure.key.starts_with(group) && figure.value > 0) told.moved.push_back(figure);
  told.advice = advice_for(run, told);
  return told;
}

// A figure in the columns of the plan and of the run.
std::string beside(const std::string& name, const std::string& planned, const std::string& held, double ratio) {
  return fmt::format("{:<22}{:>14}{:>14}{:>10}\n", name, planned, held,
                     ratio > 0 ? fmt::format("{:+.1f}%", 100 * (ratio - 1)) : "");
}

}  // namespace

std::string explanation_text(const RunDigest& run, const PredictedStep& predicted) {
  const Explanation told = explain(run);
  std::string text = fmt::format("{:<22}{:>14}{:>14}\n", "memory", "planned", "held");
  for (const MemoryLine& line : told.memory) {
    const bool whole = std::string_view(line.kind) == "total";
    const std::string name =
        whole ? fmt::format("{} at once", line.tier) : fmt::format("  {} {}", line.tier, line.kind);
    const double ratio = line.planned > 0 && line.held >= 0 ? line.held / line.planned : 0;
    text += beside(name, bytes_text(line.planned), bytes_text(line.held), ratio);
  }
  const bool known = predicted.seconds > 0;
  text += beside("time of a step", known ? duration_text(predicted.seconds) : "-", duration_text(told.seconds_per_step),
                 known ? told.seconds_per_step / predicted.seconds : 0);
  text += fmt::format("  {}: {}\n", known ? "planned" : "not planned", predicted.about);
  for (const auto& [kind, share] : told.stalls)
    if (share > 0) text += fmt::format("{:<36}{:>13.1f}%\n", "  waits: " + kind, 100 * share);
  text += fmt::format("{:<36}{:>13.1f}%\n", "  all else: compute", 100 * told.rest);
  if (!told.moved.empty()) text += "moved by all ranks\n";
  for (const RunFigure& figure : told.moved)
    text += fmt::format("  {:<34}{:>14}\n", figure.name, bytes_text(figure.value));
  for (std::size_t i = 0; i < told.advice.size(); ++i)
    text += fmt::format("{:<10}{}\n", i == 0 ? "advice" : "", told.advice[i]);
  return text;
}

Event explanation_json(const RunDigest& run, const PredictedStep& predicted) {
  const Explanation told = explain(run);
  const auto number = [](double value) { return std::isfinite(value) ? Event(value) : Event(nullptr); };
  Event memory = Event::array();
  for (const MemoryLine& line : told.memory)
    memory.push_back(
        {{"tier", line.tier}, {"kind", line.kind}, {"planned", number(line.planned)}, {"held", number(line.held)}});
  Event stalls = Event::object();
  for (const auto& [kind, share] : told.stalls) stalls[kind] = number(share);
  Event moved = Event::object();
  for (const RunFigure& figure : told.moved) moved[figure.key] = figure.value;
  return {{"memory", std::move(memory)},
          {"time",
           {{"seconds_per_step", number(told.seconds_per_step)},
            {"predicted_seconds", predicted.seconds > 0 ? Event(predicted.seconds) : Event(nullptr)},
            {"predicted_by", predicted.about},
            {"stalls", std::move(stalls)},
            {"rest", number(told.rest)}}},
          {"bytes_per_step", std::move(moved)},
          {"advice", told.advice}};
}

}  // namespace zeepo
