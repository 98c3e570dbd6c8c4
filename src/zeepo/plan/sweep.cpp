#include "zeepo/plan/sweep.h"

#include <algorithm>
#include <array>

#include "zeepo/base/error.h"
#include "zeepo/plan/count.h"
#include "zeepo/train/option_values.h"

namespace zeepo {
namespace {

std::vector<std::string> doubled(const std::string& option, const std::string& range, std::size_t dots) {
  const std::int64_t first = parse_count(option, range.substr(0, dots)),
                     last = parse_count(option, range.substr(dots + 2));
  if (last < first) throw UsageError("{} {}: must rise, as 1..1024", option, range);
  std::vector<std::string> values;
  for (std::int64_t value = first; value <= last; value *= 2) {
    values.push_back(fmt::format("{}", value));
    if (value > last / 2) break;
  }
  return values;
}

std::vector<std::string> listed(const std::string& list) {
  std::vector<std::string> values;
  std::size_t begin = 0;
  for (std::size_t comma = 0; comma != std::string::npos; begin = comma + 1) {
    comma = list.find(',', begin);
    values.push_back(list.substr(begin, comma == std::string::npos ? comma : comma - begin));
  }
  return values;
}

constexpr const char* kFigures =
    "params,stage0_bytes,stage1_bytes,stage2_bytes,stage3_bytes,checkpoint_bytes_per_node,full_bytes_per_node,"
    "model_state_working_bytes,activation_working_bytes";
constexpr std::array kMoved{"params_grads", "optimizer", "checkpoints"};

}  // namespace

Sweep parse_sweep(const std::string& text, const std::vector<std::string>& names) {
  const std::size_t equals = text.find('=');
  const std::string name = text.substr(0, equals);
  if (equals == std::string::npos || std::ranges::find(names, name) == names.end())
    throw UsageError("plan: --sweep {}: write NAME=1,4,16 or NAME=1..1024, with one of {}", text,
                     fmt::join(names, ", "));
  const std::string values = text.substr(equals + 1), option = "plan: --sweep " + name;
  const std::size_t dots = values.find("..");
  Sweep sweep{name, dots == std::string::npos ? listed(values) : doubled(option, values, dots)};
  if (std::ranges::find(sweep.values, "") != sweep.values.end())
    throw UsageError("plan: --sweep {}: a value is missing", text);
  return sweep;
}

double number_of(const Sweep& sweep, const std::string& value) {
  const std::string option = "plan: --sweep " + sweep.name;
  return sweep.name == "bandwidth" ? parse_number(option, value) : static_cast<double>(parse_count(option, value));
}

std::vector<SweepPoint> points_of(const std::vector<Sweep>& sweeps) {
  std::vector<SweepPoint> points{{}};
  for (const Sweep& sweep : sweeps) {
    if (std::ranges::count(sweeps, sweep.name, &Sweep::name) > 1)
      throw UsageError("plan: --sweep {0}=: given twice; write all values in one, as {0}=1,4,16", sweep.name);
    if (points.size() * sweep.values.size() > kMostSweepRows)
      throw UsageError("plan: --sweep {}: makes more than {} rows; give fewer values", sweep.name, kMostSweepRows);
    std::vector<SweepPoint> longer;
    for (const SweepPoint& point : points)
      for (const std::string& value : sweep.values) {
        longer.push_back(point);
        longer.back().emplace_back(sweep.name, value);
      }
    points = std::move(longer);
  }
  return points;
}

std::string csv_header(const std::vector<Sweep>& sweeps) {
  std::string header;
  for (const Sweep& sweep : sweeps) header += sweep.name + ",";
  header += kFigures;
  for (const char* moved : kMoved)
    header += fmt::format(",{0}_ait,{0}_gbps_for_50,{0}_gbps_for_90,{0}_efficiency", moved);
  return header;
}

std::string csv_row(const SweepPoint& point, const Textbook& textbook) {
  std::string row;
  for (const auto& [name, value] : point) row += value + ",";
  row += fmt::format("{}", textbook.question.params);
  for (const StageFigures& figures : textbook.stages) row += fmt::format(",{}", figures.bytes.total);
  if (const auto& figures = textbook.activations)
    row += fmt::format(",{},{},{},{}", figures->checkpoint_bytes_per_node, figures->full_bytes_per_node,
                       figures->model_state_working_bytes, figures->working_bytes);
  else
    row += ",,,,";
  for (std::size_t i = 0; i < kMoved.size(); ++i) {
    if (i >= textbook.bandwidth.size()) {
      row += ",,,,";
      continue;
    }
    const BandwidthFigures& figures = textbook.bandwidth[i];
    row += fmt::format(",{},{},{},", figures.intensity, figures.bytes_per_second_for_50 / 1e9,
                       figures.bytes_per_second_for_90 / 1e9);
    if (figures.efficiency) row += fmt::format("{}", *figures.efficiency);
  }
  return row;
}

}  // namespace zeepo
