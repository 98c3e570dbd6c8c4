#include "zeepo/metrics/run_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "zeepo/metrics/event_numbers.h"
#include "zeepo/metrics/figure_text.h"
#include "zeepo/metrics/html_page.h"

namespace zeepo {
namespace {

constexpr std::size_t kMostNameBytes = 64;

// What the page plots.
bool plotted(const std::string& name) {
  static constexpr const char* kNames[] = {"loss", "grad_norm", "lr", "seconds", "tokens_per_second", "tflops"};
  if (name.size() > kMostNameBytes) return false;
  return name.starts_with("stall_seconds/") || name.starts_with("memory/") ||
         std::ranges::find(kNames, name) != std::end(kNames);
}

// Seven digits are more than a plot shows.
void append_number(std::string& out, double value) {
  if (std::isfinite(value))
    fmt::format_to(std::back_inserter(out), "{:.7g}", value);
  else
    out += "null";
}

// A JSON array of what `value` gives for each item.
template <class Items, class Value>
std::string array_of(const Items& items, std::size_t from, Value&& value) {
  std::string out = "[";
  for (std::size_t i = from; i < items.size(); ++i) {
    if (i > from) out += ',';
    value(out, items[i]);
  }
  return out + "]";
}

// The fields of the plan and the summary that a page tells.
Event some_of(const Event& event, std::initializer_list<const char*> keys) {
  Event some = Event::object();
  for (const char* key : keys)
    if (const auto found = event.find(key); found != event.end() && found->is_primitive())
      some[key] = found->is_string() ? Event(text_in(event, key)) : *found;
  return some;
}

}  // namespace

void RunHistory::Range::add(double value) {
  if (!std::isfinite(value)) return;
  add({value, value, value, 1});
}

void RunHistory::Range::add(const Range& other) {
  if (other.count == 0) return;
  least = count == 0 ? other.least : std::min(least, other.least);
  most = count == 0 ? other.most : std::max(most, other.most);
  sum += other.sum;
  count += other.count;
}

void RunHistory::take(const Event& event) {
  const std::string kind = kind_of(event);
  if (kind == "step") return take_step(event);
  if (kind == "eval") {
    const auto loss = event.find("loss");
    if (loss == event.end() || !loss->is_number() || step_of(event) < 0) return;
    evaluations_.push_back({step_of(event), loss->get<double>()});
    if (evaluations_.size() <= 2 * kMostPoints) return;
    for (std::size_t i = 1; 2 * i < evaluations_.size(); ++i) evaluations_[i] = evaluations_[2 * i];
    evaluations_.resize((evaluations_.size() + 1) / 2);
  } else if (kind == "plan") {
    plan_ = some_of(event, {"params", "dtype", "steps", "tokens_per_step", "world_size", "comm", "stage"});
    ended_.clear();
  } else if (kind == "summary") {
    summary_ = some_of(event, {"loss", "params", "world_size", "weights_hash"});
    ended_ = "finished";
  } else if (kind == "checkpoint" || kind == "fault" || kind == "resume" || kind == "stop") {
    take_mark(event, kind);
  }
}

void RunHistory::take_mark(const Event& event, const std::string& kind) {
  if (kind == "stop") ended_ = "stopped";
  if (kind == "resume") ended_.clear();
  std::string text = text_in(event, kind == "fault" ? "message" : kind == "stop" ? "signal" : "path");
  ++mark_counts_[kind];
  marks_.push_back({step_of(event), kind, std::move(text)});
  if (marks_.size() > kMostMarks) marks_.pop_front();
}

int RunHistory::series_of(const std::string& name) {
  if (const auto found = series_.find(name); found != series_.end()) return found->second;
  if (series_.size() >= kMostSeries || !plotted(name)) return -1;
  return series_.emplace(name, static_cast<int>(series_.size())).first->second;
}

void RunHistory::take_step(const Event& event) {
  const std::int64_t step = step_of(event);
  if (step < 1) return;
  if (step <= last_step_) begin_again_at(step);
  last_step_ = step;
  ended_.clear();
  const std::int64_t index = (step - 1) / stride_;
  if (points_.empty() || points_.back().index != index) points_.push_back({index, step, step, {}});
  Point& point = points_.back();
  point.last_step = step;
  for (const EventNumber& number : numbers_of(event, '/')) {
    const int series = series_of(number.name);
    if (series < 0) continue;
    if (point.ranges.size() <= static_cast<std::size_t>(series)) point.ranges.resize(series_.size());
    point.ranges[static_cast<std::size_t>(series)].add(number.number());
  }
  last_step_event_ = some_of(event, {"loss", "tokens_per_second", "tflops", "lr", "seconds"});
  while (points_.size() > kMostPoints) halve();
}

// The point that holds steps before this one, too, stays as it is.
void RunHistory::begin_again_at(std::int64_t step) {
  while (!points_.empty() && points_.back().first_step >= step) points_.pop_back();
  if (!points_.empty()) points_.back().last_step = std::min(points_.back().last_step, step - 1);
  std::erase_if(evaluations_, [&](const Evaluation& evaluation) { return evaluation.step >= step; });
}

void RunHistory::halve() {
  stride_ *= 2;
  std::vector<Point> merged;
  for (Point& point : points_) {
    point.index = (point.first_step - 1) / stride_;
    if (merged.empty() || merged.back().index != point.index) {
      merged.push_back(std::move(point));
      continue;
    }
    Point& to = merged.back();
    to.last_step = point.last_step;
    to.ranges.resize(std::max(to.ranges.size(), point.ranges.size()));
    for (std::size_t i = 0; i < point.ranges.size(); ++i) to.ranges[i].add(point.ranges[i]);
  }
  points_ = std::move(merged);
}

std::string RunHistory::series_json(std::size_t from_point) const {
  std::string out = "{";
  for (const auto& entry : series_) {
    const auto place = static_cast<std::size_t>(entry.second);
    const auto each = [&](const char* name, auto&& value) {
      return fmt::format("\"{}\":{}", name, array_of(points_, from_point, [&](std::string& text, const Point& point) {
                           const bool known = place < point.ranges.size() && point.ranges[place].count > 0;
                           append_number(text, known ? value(point.ranges[place]) : NAN);
                         }));
    };
    out += fmt::format("{}{}:{{{}", out.size() > 1 ? "," : "", page_json(entry.first),
                       each("mean", [](const Range& r) { return r.sum / static_cast<double>(r.count); }));
    if (stride_ > 1)
      out += fmt::format(",{},{}", each("min", [](const Range& r) { return r.least; }),
                         each("max", [](const Range& r) { return r.most; }));
    out += "}";
  }
  return out + "}";
}

std::string RunHistory::marks_json() const {
  return array_of(marks_, 0, [](std::string& text, const Mark& mark) {
    text += page_json({{"step", mark.step}, {"kind", mark.kind}, {"text", mark.text}});
  });
}

std::string RunHistory::json(std::int64_t from_step, std::int64_t known_stride) const {
  std::size_t from = 0;
  if (known_stride == stride_)
    while (from < points_.size() && points_[from].last_step < from_step) ++from;
  const auto whole = [](std::string& text, std::int64_t value) { text += fmt::format("{}", value); };
  const auto object = [](const Event& event) { return event.is_null() ? "null" : page_json(event); };
  Event counts = Event::object();
  for (const auto& [kind, count] : mark_counts_) counts[kind] = count;
  return fmt::format(
      R"({{"stride":{},"from":{},"first":{},"last":{},"series":{},"evals":{},"marks":{},"counts":{},"latest":{},"last_step":{},"plan":{},"summary":{},"ended":"{}"}})",
      stride_, from,
      array_of(points_, from, [&](std::string& text, const Point& point) { whole(text, point.first_step); }),
      array_of(points_, from, [&](std::string& text, const Point& point) { whole(text, point.last_step); }),
      series_json(from),
      array_of(evaluations_, 0,
               [&](std::string& text, const Evaluation& evaluation) {
                 text += fmt::format("[{},", evaluation.step);
                 append_number(text, evaluation.loss);
                 text += "]";
               }),
      marks_json(), object(counts), object(last_step_event_), last_step_, object(plan_), object(summary_), ended_);
}

}  // namespace zeepo
