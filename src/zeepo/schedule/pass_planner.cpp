#include "zeepo/schedule/pass_planner.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/work_count.h"

namespace zeepo {

PassPlanner::PassPlanner(Options options)
    : options_(std::move(options)), uses_(options_.unit_bytes.size()), in_now_(options_.unit_bytes.size()) {}

PassPlanner::Wanted PassPlanner::begin(int kind) {
  kind_ = kind;
  current_.clear();
  expected_ = matching();
  end_ = {};
  uses_.assign(uses_.size(), 0);
  now_.clear();
  in_now_.assign(in_now_.size(), false);
  ahead_bytes_ = 0;
  Wanted wanted;
  move_end(wanted.ahead);
  return wanted;
}

PassPlanner::Wanted PassPlanner::visit(const Visit& visit) {
  const std::size_t position = current_.size();
  current_.push_back(visit);
  maybe_gone_ = now_;
  if (expected_ && position < expected_->size() && (*expected_)[position] == visit) {
    pass_over(position);
  } else if (expected_) {
    expect(matching());
    if (!expected_) ++departures_;
  }
  Wanted wanted{options_.units_of_module[visit.module], {}, {}};
  set_now(wanted.now);
  move_end(wanted.ahead);
  std::ranges::sort(maybe_gone_);
  maybe_gone_.erase(std::unique(maybe_gone_.begin(), maybe_gone_.end()), maybe_gone_.end());
  for (const std::size_t unit : maybe_gone_)
    if (!is_wanted(unit) && options_.unit_bytes[unit] > 0) wanted.gone.push_back(unit);
  return wanted;
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

std::vector<std::size_t> PassPlanner::ahead() const {
  std::vector<std::size_t> units;
  if (!expected_) return units;
  std::vector<bool> listed = in_now_;
  for (std::size_t visit = current_.size(); visit <= end_.visit && visit < expected_->size(); ++visit)
    for (std::size_t i = 0; i < units_at(visit).size() && (visit < end_.visit || i < end_.unit); ++i) {
      const std::size_t unit = units_at(visit)[i];
      if (options_.unit_bytes[unit] == 0 || listed[unit]) continue;
      listed[unit] = true;
      units.push_back(unit);
    }
  return units;
}

// The most recent recording that begins with the visits made so far.
const Trace* PassPlanner::matching() const {
  const auto traces = traces_.find(kind_);
  if (traces == traces_.end()) return nullptr;
  for (const Trace& trace : traces->second)
    if (trace.size() >= current_.size() && std::equal(current_.begin(), current_.end(), trace.begin())) return &trace;
  return nullptr;
}

// Another pass from here on. Each recording is left once in a pass, so that this is rare.
void PassPlanner::expect(const Trace* trace) {
  for (std::size_t visit = current_.size() - 1; visit < end_.visit; ++visit) pass_over(visit);
  if (end_.unit > 0) pass_over(end_.visit);
  expected_ = trace;
  end_ = {current_.size(), 0};
}

// The visit is made: its needs are no longer ahead.
void PassPlanner::pass_over(std::size_t visit) {
  const auto& units = units_at(visit);
  const std::size_t count = visit < end_.visit ? units.size() : end_.unit;
  for (std::size_t i = 0; i < count; ++i) drop_use(units[i]);
  if (visit >= end_.visit) end_ = {visit + 1, 0};
}

// What is needed now is not counted as ahead, though a later visit may need it too.
void PassPlanner::set_now(const std::vector<std::size_t>& units) {
  const auto mark = [&](bool now, std::int64_t sign) {
    for (const std::size_t unit : now_) {
      if (in_now_[unit] == now) continue;
      in_now_[unit] = now;
      if (uses_[unit] > 0) ahead_bytes_ += sign * options_.unit_bytes[unit];
    }
  };
  mark(false, +1);
  now_ = units;
  mark(true, -1);
}

// As many needs as the bytes allow, in order: a later, smaller one must not overtake.
void PassPlanner::move_end(std::vector<std::size_t>& entered) {
  if (!expected_) return;
  while (ahead_bytes_ > options_.prefetch_bytes) {
    while (end_.unit == 0) end_ = {end_.visit - 1, units_at(end_.visit - 1).size()};
    drop_use(units_at(end_.visit)[--end_.unit]);
  }
  for (; end_.visit < expected_->size(); end_ = {end_.visit + 1, 0})
    for (; end_.unit < units_at(end_.visit).size(); ++end_.unit) {
      const std::size_t unit = units_at(end_.visit)[end_.unit];
      const bool is_new = !is_wanted(unit) && options_.unit_bytes[unit] > 0;
      if (is_new && options_.unit_bytes[unit] > options_.prefetch_bytes - ahead_bytes_) return;
      add_use(unit);
      if (is_new) entered.push_back(unit);
    }
}

void PassPlanner::add_use(std::size_t unit) {
  count_work();
  if (uses_[unit]++ == 0 && !in_now_[unit]) ahead_bytes_ += options_.unit_bytes[unit];
}

void PassPlanner::drop_use(std::size_t unit) {
  count_work();
  if (--uses_[unit] > 0 || in_now_[unit]) return;
  ahead_bytes_ -= options_.unit_bytes[unit];
  maybe_gone_.push_back(unit);
}

}  // namespace zeepo
