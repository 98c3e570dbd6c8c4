#include "zeepo/plan/run_sweep.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr double kFlopsPerTokenAndParam = 6;

double tera_flops_of_a_rank(const SweptRun& run) {
  return kFlopsPerTokenAndParam * static_cast<double>(run.params) * run.time->tokens_per_second / run.ranks / 1e12;
}

}  // namespace

const std::vector<std::string>& run_sweep_names() {
  static const std::vector<std::string> names{"layers", "hidden", "micro-batch", "seq-len", "ranks"};
  return names;
}

SweptRun swept_run(const Recommended& recommended, std::int64_t params) {
  const RunSetup& setup = recommended.setup;
  return {.params = params,
          .ranks = setup.ranks.ranks,
          .fits = recommended.fits,
          .flags = fmt::format("--stage {} {}", setup.options.stage, flags_of(setup.arrangement())),
          .bytes = recommended.memory.bytes,
          .time = recommended.time};
}

std::string run_csv_header(const std::vector<Sweep>& sweeps) {
  std::string header;
  for (const Sweep& sweep : sweeps) header += sweep.name + ",";
  header += "params,fits,recommended";
  for (const Place place : kPlaces) header += fmt::format(",{}_bytes", name_of(place));
  return header + ",step_seconds,tokens_per_second,tflops_per_rank,bound";
}

std::string csv_row(const SweepPoint& point, const SweptRun& run) {
  std::string row;
  for (const auto& [name, value] : point) row += value + ",";
  row += fmt::format("{},{},\"{}\"", run.params, run.fits, run.flags);  // shares have commas
  for (const std::int64_t bytes : run.bytes) row += fmt::format(",{}", bytes);
  if (!run.time) return row + ",,,,";
  return row + fmt::format(",{},{},{},{}", run.time->seconds, run.time->tokens_per_second, tera_flops_of_a_rank(run),
                           name_of(run.time->bound()));
}

std::vector<PlanCurve> curves_of(const std::vector<Sweep>& sweeps, const std::vector<SweptRun>& runs) {
  std::vector<PlanCurve> curves;
  const auto add = [&](const std::string& title, PlanCurve::Unit unit, const CurveFigure& figure) {
    curves.push_back(empty_curve(sweeps, title, unit));
    add_lines(curves.back(), "", sweeps, figure);
  };
  for (const Place place : kPlaces) {
    const auto tier = static_cast<std::size_t>(place);
    if (std::ranges::none_of(runs, [&](const SweptRun& run) { return run.bytes[tier] > 0; })) continue;
    add(fmt::format("Bytes of a rank: {}", name_of(place)), PlanCurve::Unit::bytes,
        [&](std::size_t i) { return std::optional(static_cast<double>(runs[i].bytes[tier])); });
  }
  if (std::ranges::none_of(runs, [](const SweptRun& run) { return run.time.has_value(); })) return curves;
  add("Tokens/s", PlanCurve::Unit::rate,
      [&](std::size_t i) { return runs[i].time ? std::optional(runs[i].time->tokens_per_second) : std::nullopt; });
  add("TFLOP/s of a rank", PlanCurve::Unit::rate,
      [&](std::size_t i) { return runs[i].time ? std::optional(tera_flops_of_a_rank(runs[i])) : std::nullopt; });
  return curves;
}

}  // namespace zeepo
