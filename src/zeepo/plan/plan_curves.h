// Curves of a plan: figures over one quantity, as a page draws them.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/plan/recommended.h"
#include "zeepo/plan/sweep.h"

namespace zeepo {

struct PlanCurve {
  enum class Unit { bytes, rate, percent };
  struct Line {
    std::string label;
    std::vector<std::optional<double>> values;  // one for each of `xs`
  };
  std::string title, x_name;
  Unit unit = Unit::bytes;
  std::vector<double> xs;
  std::vector<Line> lines;
  std::optional<std::pair<std::string, double>> limit = {};  // a level that is drawn beside, with its name
};
nlohmann::ordered_json to_json(const PlanCurve& curve);

// Device memory and tokens/s of the recommended settings with more samples a micro-step, as far as all tiers have room
// and once beyond.
std::vector<PlanCurve> curves_by_batch(const Recommended& recommended, const PlanMachine& machine);

// Over the first sweep's quantity, without lines.
PlanCurve empty_curve(const std::vector<Sweep>& sweeps, const std::string& title, PlanCurve::Unit unit);
// Of the point of this number of points_of(sweeps); nothing where it is not known.
using CurveFigure = std::function<std::optional<double>(std::size_t point)>;
// Adds a line for each combination of the other sweeps' values, named by these and `label`.
void add_lines(PlanCurve& curve, const std::string& label, const std::vector<Sweep>& sweeps, const CurveFigure& figure);

// Figures of the formulas at each point of sweeps, over the first one's quantity; a line for each combination of the
// others. `textbooks` are those of points_of(sweeps).
std::vector<PlanCurve> curves_of(const std::vector<Sweep>& sweeps, const std::vector<Textbook>& textbooks);

}  // namespace zeepo
