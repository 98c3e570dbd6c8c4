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
  explicit PassPlanner(Options options) : options_(std::move(options)) {}

  // Units to hold during a visit: those it needs first, then those ahead in the order they will be needed. What is not
  // named may go.
  struct Wanted {
    std::vector<std::size_t> now, ahead;
  };
  // Before the first visit of a pass: `kind` is any number that tells passes apart beforehand (training or not).
  Wanted begin(int kind);
  Wanted visit(const Visit& visit);
  void end();

  // From the next call of begin() or visit() on.
  void set_prefetch_bytes(std::int64_t bytes) { options_.prefetch_bytes = bytes; }

  std::int64_t departures() const { return departures_; }

 private:
  Wanted wanted_from(std::size_t position, std::vector<std::size_t> now) const;
  const Trace* matching() const;

  Options options_;
  std::map<int, std::vector<Trace>> traces_;
  int kind_ = 0;
  Trace current_;
  const Trace* expected_ = nullptr;
  std::int64_t departures_ = 0;
};

}  // namespace zeepo
