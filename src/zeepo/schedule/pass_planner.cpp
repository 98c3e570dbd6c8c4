#include "zeepo/schedule/pass_planner.h"

#include <algorithm>

namespace zeepo {
namespace {

bool holds(const std::vector<std::size_t>& units, std::size_t unit) {
  return std::find(units.begin(), units.end(), unit) != units.end();
}

}  // namespace

PassPlanner::Wanted PassPlanner::begin(int kind) {
  kind_ = kind;
  current_.clear();
  expected_ = matching();
  return wanted_from(0, {});
}

PassPlanner::Wanted PassPlanner::visit(const Visit& visit) {
  current_.push_back(visit);
  const std::size_t position = current_.size();
  if (expected_ && (position > expected_->size() || (*expected_)[position - 1] != visit)) {
    expected_ = matching();
    if (!expected_) ++departures_;
  }
  return wanted_from(position, options_.units_of_module[visit.module]);
}

void PassPlanner::end() {
  auto& traces = traces_[kind_];
  const auto known = std::find(traces.begin(), traces.end(), current_);
  if (known != traces.end()) {
    std::rotate(traces.begin(), known, known + 1);  // the likeliest next time
  } else {
    traces.insert(traces.begin(), current_);
    if (traces.size() > kTracesAKind) traces.pop_back();
  }
  expected_ = nullptr;
}

// The most recent recording that begins with the visits made so far.
const Trace* PassPlanner::matching() const {
  const auto traces = traces_.find(kind_);
  if (traces == traces_.end()) return nullptr;
  for (const Trace& trace : traces->second)
    if (trace.size() >= current_.size() && std::equal(current_.begin(), current_.end(), trace.begin())) return &trace;
  return nullptr;
}

PassPlanner::Wanted PassPlanner::wanted_from(std::size_t position, std::vector<std::size_t> now) const {
  Wanted wanted{std::move(now), {}};
  if (!expected_) return wanted;
  std::int64_t left = options_.prefetch_bytes;
  for (std::size_t i = position; i < expected_->size(); ++i)
    for (const std::size_t unit : options_.units_of_module[(*expected_)[i].module]) {
      if (options_.unit_bytes[unit] == 0 || holds(wanted.now, unit) || holds(wanted.ahead, unit)) continue;
      if (options_.unit_bytes[unit] > left) return wanted;  // in order: a later, smaller one must not overtake
      left -= options_.unit_bytes[unit];
      wanted.ahead.push_back(unit);
    }
  return wanted;
}

}  // namespace zeepo
