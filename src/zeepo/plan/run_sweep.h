// Curves of the simulator: at each point of a sweep what is recommended, what it takes and how fast it is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "zeepo/plan/plan_curves.h"
#include "zeepo/plan/recommended.h"
#include "zeepo/plan/sweep.h"

namespace zeepo {

// The options that an exact plan can be swept over.
const std::vector<std::string>& run_sweep_names();
inline constexpr std::size_t kMostSweptRuns = 1000;

struct SweptRun {
  std::int64_t params = 0;
  int ranks = 1;
  bool fits = false;
  std::string flags;   // stage and placement of what is recommended, or of what comes nearest
  PlaceBytes bytes{};  // of a rank
  std::optional<StepTime> time;
};
SweptRun swept_run(const Recommended& recommended, std::int64_t params);

// As CSV. Every row has all columns; what is not known is empty.
std::string run_csv_header(const std::vector<Sweep>& sweeps);
std::string csv_row(const SweepPoint& point, const SweptRun& run);

// `runs` are those of points_of(sweeps). Without speeds there are none of tokens/s.
std::vector<PlanCurve> curves_of(const std::vector<Sweep>& sweeps, const std::vector<SweptRun>& runs);

}  // namespace zeepo
