#include "zeepo/metrics/compared_runs.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/metrics/figure_text.h"

namespace zeepo {
namespace {

using Unit = RunFigure::Unit;

// Steps that all runs have, and the first in which a loss is another.
struct LossComparison {
  std::int64_t common_steps = 0;
  std::optional<std::int64_t> first_difference;
};

LossComparison compare_losses(const std::vector<ComparedRun>& runs) {
  std::map<std::int64_t, std::vector<double>> by_step;
  for (const ComparedRun& run : runs)
    for (const RunDigest::Loss& loss : run.digest->losses()) by_step[loss.step].push_back(loss.value);
  LossComparison comparison;
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  for (const auto& [step, losses] : by_step) {
    if (losses.size() != runs.size()) continue;
    ++comparison.common_steps;
    const bool same = std::ranges::adjacent_find(losses, std::ranges::not_equal_to{}, bits) == losses.end();
    if (!same && !comparison.first_difference) comparison.first_difference = step;
  }
  return comparison;
}

std::string text_of(const RunFigure& figure) {
  switch (figure.unit) {
    case Unit::text: return figure.text;
    case Unit::bytes: return bytes_text(figure.value);
    case Unit::seconds: return duration_text(figure.value);
    case Unit::rate: return rate_text(figure.value);
    case Unit::loss: return fmt::format("{:.6f}", figure.value);
    case Unit::count: break;
  }
  return grouped(figure.value);
}

// Beside the first run's.
std::string beside(const RunFigure& figure, const RunFigure& first) {
  if (figure.unit == Unit::text) return figure.text == first.text ? "the same" : "another";
  if (figure.value == first.value) return "the same";
  if (figure.unit == Unit::loss) return fmt::format("{:+.2g}", figure.value - first.value);
  return first.value > 0 ? fmt::format("{:.2f} x", figure.value / first.value) : "";
}

const RunFigure* find(const std::vector<RunFigure>& figures, const std::string& name) {
  const auto found = std::ranges::find(figures, name, &RunFigure::name);
  return found == figures.end() ? nullptr : &*found;
}

// Bytes and stalls that no run has say nothing.
bool nothing_moved(const std::vector<std::vector<RunFigure>>& runs, const std::string& name) {
  return std::ranges::all_of(runs, [&](const auto& figures) {
    const RunFigure* figure = find(figures, name);
    return figure == nullptr || ((figure->unit == Unit::bytes || figure->unit == Unit::seconds) && figure->value == 0);
  });
}

// Names of all figures, each after those before it in any run.
std::vector<std::string> names_in(const std::vector<std::vector<RunFigure>>& runs) {
  std::vector<std::string> names;
  for (const auto& figures : runs) {
    auto place = names.begin();
    for (const RunFigure& figure : figures) {
      const auto found = std::ranges::find(names, figure.name);
      place = found == names.end() ? names.insert(place, figure.name) + 1 : std::max(place, found + 1);
    }
  }
  return names;
}

std::vector<std::vector<RunFigure>> figures_of(const std::vector<ComparedRun>& runs) {
  std::vector<std::vector<RunFigure>> figures;
  for (const ComparedRun& run : runs) figures.push_back(run.digest->figures());
  return figures;
}

// Columns as wide as their widest cell; what ends a line is not padded.
std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

}  // namespace

std::string comparison_text(const std::vector<ComparedRun>& runs) {
  const auto figures = figures_of(runs);
  std::vector<std::vector<std::string>> rows(1);
  rows[0].emplace_back();
  for (std::size_t i = 0; i < runs.size(); ++i) {
    rows[0].push_back(runs[i].name);
    if (i > 0) rows[0].emplace_back();
  }
  std::string long_texts;  // which would make every column wide
  for (const std::string& name : names_in(figures)) {
    if (nothing_moved(figures, name)) continue;
    std::vector<std::string> row{name};
    const RunFigure* first = find(figures[0], name);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const RunFigure* figure = find(figures[i], name);
      if (figure != nullptr && figure->unit == Unit::text && figure->text.size() > 32) {
        long_texts += fmt::format("{} of {}: {}\n", name, runs[i].name, figure->text);
        row.emplace_back("see below");
      } else {
        row.push_back(figure != nullptr ? text_of(*figure) : "-");
      }
      if (i > 0) row.push_back(figure != nullptr && first != nullptr ? beside(*figure, *first) : "");
    }
    rows.push_back(std::move(row));
  }
  const LossComparison losses = compare_losses(runs);
  std::string told = "the runs have no step in common";
  if (losses.common_steps > 0)
    told = losses.first_difference
               ? fmt::format("the first loss that differs is that of step {}", *losses.first_difference)
               : fmt::format("the same to the bit in all {} steps in common", losses.common_steps);
  return aligned(rows) + "losses: " + told + "\n" + long_texts;
}

Event comparison_json(const std::vector<ComparedRun>& runs) {
  Event json{{"runs", Event::array()}};
  for (const ComparedRun& run : runs) {
    Event figures = Event::object();
    for (const RunFigure& figure : run.digest->figures()) {
      figures[figure.key] = figure.unit == Unit::text ? Event(figure.text) : Event(figure.value);
    }
    json["runs"].push_back({{"name", run.name}, {"figures", std::move(figures)}});
  }
  const LossComparison losses = compare_losses(runs);
  json["losses"] = {{"common_steps", losses.common_steps}, {"first_difference", nullptr}};
  if (losses.first_difference) json["losses"]["first_difference"] = *losses.first_difference;
  return json;
}

}  // namespace zeepo
