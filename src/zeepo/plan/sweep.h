// The papers' curves: one option, or several, over a list of values, and a row of figures for each combination.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "zeepo/plan/textbook.h"

namespace zeepo {

// "ranks=1,4,16", or "hidden=1024..65536": doubled from the first to the last.
struct Sweep {
  std::string name;
  std::vector<std::string> values;
};
// Throws UsageError for a name that is not in `names`, no value, or a range that does not rise from 1 on.
Sweep parse_sweep(const std::string& text, const std::vector<std::string>& names);

// As its option reads it: "500M" of parameters, "10.5" GB/s.
double number_of(const Sweep& sweep, const std::string& value);

// One value of each sweep, the last one changing fastest. Throws UsageError for two sweeps of one name
// and past kMostSweepRows of them.
inline constexpr std::size_t kMostSweepRows = 100'000;
using SweepPoint = std::vector<std::pair<std::string, std::string>>;
std::vector<SweepPoint> points_of(const std::vector<Sweep>& sweeps);

// As CSV. Every row has all columns; what is not known is empty.
std::string csv_header(const std::vector<Sweep>& sweeps);
std::string csv_row(const SweepPoint& point, const Textbook& textbook);

}  // namespace zeepo
