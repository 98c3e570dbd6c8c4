// Which units must be there at each visit of a pass, and which should be on their way.
//
// The order of visits is learnt: a pass is recorded, and a later pass of the same kind that starts alike is expected to
// go on alike. Several recordings of a kind are kept, so that training with a branch in the model, evaluation and
// generation may alternate. A pass that departs from all of them is only slower: it gets what it needs at each visit
// and nothing ahead, and is recorded too. Pure: no I/O, no clock; every rank that makes the same visits gets the same
// answers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace zeepo {

struct Visit {
  std::size_t module;
  enum class Direction : std::uint8_t { forward, backward } direction;
  friend bool operator==(const Visit&, const Visit&) = default;
};
using Trace = std::vector<Visit>;

class PassPlanner {
 public:
  static constexpr std::size_t kTracesAKind = 8;

  struct Options {
    std::vector<std::vector<std::size_t>> units_of_module;
    std::vector<std::int64_t> unit_bytes;  // what fetching the unit takes; 0: it is always there
    std::int64_t prefetch_bytes = 0;       // of units ahead of the current visit
  };
  explicit PassPlanner(Options options);

  // What a visit changes. Of a pass whose every visit wants a thousand units ahead, each visit names those that differ:
  // a whole pass takes time in proportion to its visits.
  struct Wanted {
    std::vector<std::size_t> now;    // units that the visit needs
    std::vector<std::size_t> ahead;  // units wanted ahead from this visit on, in the order they will be needed
    std::vector<std::size_t> gone;   // units that were wanted and are no more
  };
  // Before the first visit of a pass: `kind` is any number that tells passes apart beforehand (training or not).
  // Nothing is wanted from before.
  Wanted begin(int kind);
  Wanted visit(const Visit& visit);
  void end();
  // Another module, with a number of its own: between two calls of visit().
  std::size_t add_module(std::vector<std::size_t> units) {
    options_.units_of_module.push_back(std::move(units));
    return options_.units_of_module.size() - 1;
  }

  // From the next call of begin() or visit() on.
  void set_prefetch_bytes(std::int64_t bytes) { options_.prefetch_bytes = bytes; }

  std::int64_t departures() const { return departures_; }
  bool always_there(std::size_t unit) const { return options_.unit_bytes[unit] == 0; }
  // All units that are wanted ahead, in the order they will be needed.
  std::vector<std::size_t> ahead() const;

 private:
  // A place between two needs of the expected pass: before unit `unit` of visit `visit`, the visit's units in order.
  struct Place {
    std::size_t visit = 0, unit = 0;
  };
  const std::vector<std::size_t>& units_at(std::size_t visit) const {
    return options_.units_of_module[(*expected_)[visit].module];
  }
  bool is_wanted(std::size_t unit) const { return uses_[unit] > 0 || in_now_[unit]; }
  void expect(const Trace* trace);
  void pass_over(std::size_t visit);
  void set_now(const std::vector<std::size_t>& units);
  void move_end(std::vector<std::size_t>& entered);
  void add_use(std::size_t unit);
  void drop_use(std::size_t unit);
  const Trace* matching() const;

  Options options_;
  std::map<int, std::vector<Trace>> traces_;
  int kind_ = 0;
  Trace current_;
  const Trace* expected_ = nullptr;
  std::int64_t departures_ = 0;
  // The needs of the expected pass from the next visit up to `end_` are wanted ahead.
  Place end_;
  std::vector<std::int32_t> uses_;  // of each unit, among those needs
  std::vector<std::size_t> now_;
  std::vector<bool> in_now_;
  std::int64_t ahead_bytes_ = 0;         // of the units that are needed there and not now, each once
  std::vector<std::size_t> maybe_gone_;  // of the current call: units that lost a use, or were needed until now
};

}  // namespace zeepo
