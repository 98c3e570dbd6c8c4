#include "zeepo/schedule/pass_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "zeepo/base/work_count.h"

namespace zeepo {
namespace {

using Units = std::vector<std::size_t>;
// All that is wanted, where the planner tells what changes.
struct Wanted {
  Units now, ahead;
};
constexpr int kTrain = 0, kInfer = 1;

Trace forward_and_back(const std::vector<std::size_t>& modules) {
  Trace trace;
  for (const std::size_t module : modules) trace.push_back({module, Visit::Direction::forward});
  for (auto module = modules.rbegin(); module != modules.rend(); ++module)
    trace.push_back({*module, Visit::Direction::backward});
  return trace;
}

// Module i needs unit i; each unit is of 10 bytes.
PassPlanner::Options row(std::size_t modules, std::int64_t prefetch_bytes) {
  PassPlanner::Options options{.units_of_module = {}, .unit_bytes = {}, .prefetch_bytes = prefetch_bytes};
  for (std::size_t i = 0; i < modules; ++i) {
    options.units_of_module.push_back({i});
    options.unit_bytes.push_back(10);
  }
  return options;
}

// The answers of a whole pass, begin()'s first. What the planner says of changes must come to the same.
std::vector<Wanted> pass(PassPlanner& planner, int kind, const Trace& trace) {
  std::set<std::size_t> held;
  std::vector<Wanted> answers;
  const auto take = [&](const PassPlanner::Wanted& change) {
    for (const std::size_t unit : change.gone) EXPECT_EQ(held.erase(unit), 1u) << unit;
    held.insert(change.now.begin(), change.now.end());
    held.insert(change.ahead.begin(), change.ahead.end());
    const Wanted& all = answers.emplace_back(Wanted{change.now, planner.ahead()});
    std::set<std::size_t> wanted(all.now.begin(), all.now.end());
    wanted.insert(all.ahead.begin(), all.ahead.end());
    std::erase_if(held, [&](std::size_t unit) { return planner.always_there(unit) && !wanted.contains(unit); });
    EXPECT_EQ(held, wanted) << "answer " << answers.size() - 1;
  };
  take(planner.begin(kind));
  for (const Visit& visit : trace) take(planner.visit(visit));
  planner.end();
  return answers;
}

Units ahead_of(const std::vector<Wanted>& wanted, std::size_t visit) { return wanted[visit + 1].ahead; }

void expect_nothing_ahead(const std::vector<Wanted>& wanted) {
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_EQ(wanted[i].ahead, Units{}) << "answer " << i;
}

TEST(PassPlanner, ExpectsThePassItHasSeen) {
  PassPlanner planner(row(3, 20));
  const Trace trace = forward_and_back({0, 1, 2});
  const auto first = pass(planner, kTrain, trace);
  expect_nothing_ahead(first);
  EXPECT_EQ(first[0].now, Units{});
  EXPECT_EQ(first[2].now, Units{1});

  const auto second = pass(planner, kTrain, trace);
  EXPECT_EQ(second[0].now, Units{});
  EXPECT_EQ(second[0].ahead, (Units{0, 1}));
  for (std::size_t i = 0; i < trace.size(); ++i) EXPECT_EQ(second[i + 1].now, Units{trace[i].module});
  EXPECT_EQ(ahead_of(second, 0), (Units{1, 2}));
  EXPECT_EQ(ahead_of(second, 1), (Units{2, 0}));  // back over 2 and 1, which are there, to 0
  EXPECT_EQ(ahead_of(second, 2), (Units{1, 0}));
  EXPECT_EQ(ahead_of(second, 4), Units{0});
  EXPECT_EQ(ahead_of(second, 5), Units{});
  EXPECT_EQ(planner.departures(), 0);
}

TEST(PassPlanner, KeepsToTheBytesAndNothingOvertakes) {
  auto options = row(4, 25);
  options.unit_bytes = {10, 10, 30, 5};
  PassPlanner planner(options);
  const Trace trace = forward_and_back({0, 1, 2, 3});
  (void)pass(planner, kTrain, trace);
  const auto wanted = pass(planner, kTrain, trace);
  EXPECT_EQ(wanted[0].ahead, (Units{0, 1}));  // 2 does not fit, and 3 must wait for it
  EXPECT_EQ(ahead_of(wanted, 0), Units{1});
  EXPECT_EQ(ahead_of(wanted, 1), Units{});
  EXPECT_EQ(ahead_of(wanted, 2), (Units{3, 1, 0}));  // exactly 25
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    std::int64_t bytes = 0;
    for (const std::size_t unit : wanted[i].ahead) bytes += options.unit_bytes[unit];
    EXPECT_LE(bytes, options.prefetch_bytes) << "answer " << i;
  }

  options.prefetch_bytes = 0;
  PassPlanner none(options);
  (void)pass(none, kTrain, trace);
  expect_nothing_ahead(pass(none, kTrain, trace));
}

TEST(PassPlanner, NeverAsksAheadForWhatIsAlwaysThere) {
  auto options = row(4, 20);
  options.unit_bytes = {10, 0, 10, 0};
  options.units_of_module = {{0}, {1, 2}, {3}, {2, 3}};
  PassPlanner planner(options);
  const Trace trace = forward_and_back({0, 1, 2, 3});
  (void)pass(planner, kTrain, trace);
  const auto wanted = pass(planner, kTrain, trace);
  EXPECT_EQ(wanted[0].ahead, (Units{0, 2}));
  for (const Wanted& answer : wanted)
    for (const std::size_t unit : answer.ahead) EXPECT_GT(options.unit_bytes[unit], 0) << unit;
  EXPECT_EQ(wanted[2].now, (Units{1, 2}));
}

TEST(PassPlanner, AsksOnceForWhatTwoModulesShare) {
  auto options = row(3, 30);
  options.units_of_module = {{0}, {1}, {2, 0}};  // the last borrows from the first
  PassPlanner planner(options);
  const Trace trace = forward_and_back({0, 1, 2});
  (void)pass(planner, kTrain, trace);
  const auto wanted = pass(planner, kTrain, trace);
  EXPECT_EQ(wanted[0].ahead, (Units{0, 1, 2}));
  EXPECT_EQ(ahead_of(wanted, 1), (Units{2, 0}));
  EXPECT_EQ(ahead_of(wanted, 2), Units{1});
}

TEST(PassPlanner, ADepartureGetsItsNeedsAndIsRecorded) {
  PassPlanner planner(row(5, 100));
  const Trace usual = forward_and_back({0, 1, 2}), other = forward_and_back({0, 3, 2});
  (void)pass(planner, kTrain, usual);
  const auto departing = pass(planner, kTrain, other);
  EXPECT_EQ(planner.departures(), 1);
  EXPECT_EQ(ahead_of(departing, 0), (Units{1, 2}));  // not yet known
  for (std::size_t i = 1; i < other.size(); ++i) {
    EXPECT_EQ(departing[i + 1].now, Units{other[i].module});
    EXPECT_EQ(ahead_of(departing, i), Units{}) << "visit " << i;
  }
  const auto again = pass(planner, kTrain, other);
  EXPECT_EQ(ahead_of(again, 0), (Units{3, 2}));
  const auto back = pass(planner, kTrain, usual);
  EXPECT_EQ(ahead_of(back, 1), (Units{2, 0}));
  EXPECT_EQ(planner.departures(), 1);
}

TEST(PassPlanner, AlternatingBranchesGetTheirOwnTraceOnceTheyDiffer) {
  PassPlanner planner(row(6, 100));
  const Trace left = forward_and_back({0, 1, 2, 5}), right = forward_and_back({0, 3, 4, 5});
  (void)pass(planner, kTrain, left);
  (void)pass(planner, kTrain, right);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ahead_of(pass(planner, kTrain, left), 1), (Units{2, 5, 0})) << i;
    EXPECT_EQ(ahead_of(pass(planner, kTrain, right), 1), (Units{4, 5, 0})) << i;
  }
  EXPECT_EQ(planner.departures(), 1);  // the first time right was taken
}

TEST(PassPlanner, APassThatEndsEarlyOrGoesOnIsAnotherTrace) {
  PassPlanner planner(row(4, 100));
  const Trace whole = forward_and_back({0, 1, 2}), longer = [&] {
    Trace trace = whole;
    trace.push_back({3, Visit::Direction::forward});
    trace.push_back({1, Visit::Direction::forward});
    return trace;
  }();
  (void)pass(planner, kTrain, whole);
  EXPECT_EQ(ahead_of(pass(planner, kTrain, longer), 6), Units{});
  EXPECT_EQ(planner.departures(), 1);
  EXPECT_EQ(ahead_of(pass(planner, kTrain, longer), 6), Units{1});
  (void)pass(planner, kTrain, whole);  // ends where the other goes on
  EXPECT_EQ(planner.departures(), 1);
  EXPECT_EQ(ahead_of(pass(planner, kTrain, longer), 6), Units{1});
  EXPECT_EQ(planner.departures(), 1);
}

TEST(PassPlanner, KindsAreApart) {
  PassPlanner planner(row(4, 100));
  const Trace training = forward_and_back({0, 1, 2});
  const Trace inference{{0, Visit::Direction::forward}, {3, Visit::Direction::forward}};
  (void)pass(planner, kTrain, training);
  expect_nothing_ahead(pass(planner, kInfer, inference));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pass(planner, kTrain, training)[0].ahead, (Units{0, 1, 2}));
    EXPECT_EQ(pass(planner, kInfer, inference)[0].ahead, (Units{0, 3}));
  }
  EXPECT_EQ(planner.departures(), 0);
}

TEST(PassPlanner, KeepsTheTracesUsedLast) {
  constexpr std::size_t kMore = PassPlanner::kTracesAKind + 1;
  PassPlanner planner(row(kMore + 1, 1000));
  const auto way = [](std::size_t i) { return forward_and_back({0, i + 1}); };
  const auto knows = [](const PassPlanner& of, std::size_t i) {
    PassPlanner copy(of);  // what it answers is forgotten with it
    (void)copy.begin(kTrain);
    (void)copy.visit({0, Visit::Direction::forward});
    (void)copy.visit({i + 1, Visit::Direction::forward});
    return copy.ahead() == Units{0};
  };
  (void)pass(planner, kInfer, way(0));
  for (std::size_t i = 0; i < kMore - 1; ++i) (void)pass(planner, kTrain, way(i));
  for (std::size_t i = 0; i < kMore - 1; ++i) EXPECT_TRUE(knows(planner, i)) << i;
  (void)pass(planner, kTrain, way(0));          // used again: the second is the oldest now
  (void)pass(planner, kTrain, way(kMore - 1));  // one too many
  for (std::size_t i = 0; i < kMore; ++i) EXPECT_EQ(knows(planner, i), i != 1) << i;
  EXPECT_EQ(pass(planner, kInfer, way(0))[0].ahead, (Units{0, 1}));
}

TEST(PassPlanner, AnswersAlikeForTheSameVisits) {
  const std::vector<Trace> ways{forward_and_back({0, 1, 2}), forward_and_back({0, 3, 2, 4}), forward_and_back({4, 0})};
  PassPlanner one(row(5, 25)), two(row(5, 25));
  for (std::size_t i = 0; i < 40; ++i) {
    const Trace& way = ways[i * i % 7 % ways.size()];
    const int kind = static_cast<int>(i % 3 == 0);
    const auto a = pass(one, kind, way), b = pass(two, kind, way);
    for (std::size_t k = 0; k < a.size(); ++k) {
      EXPECT_EQ(a[k].now, b[k].now);
      EXPECT_EQ(a[k].ahead, b[k].ahead);
    }
  }
}

// What an interrupted pass leaves behind disturbs nothing.
TEST(PassPlanner, BeginsAnewAfterAPassThatDidNotEnd) {
  PassPlanner planner(row(3, 100));
  const Trace trace = forward_and_back({0, 1, 2});
  (void)pass(planner, kTrain, trace);
  (void)planner.begin(kTrain);
  (void)planner.visit({2, Visit::Direction::forward});
  EXPECT_EQ(pass(planner, kTrain, trace)[0].ahead, (Units{0, 1, 2}));
}

TEST(PassPlanner, TheDepthMayChangeBetweenPasses) {
  PassPlanner planner({.units_of_module = {{0}, {1}, {2}, {3}}, .unit_bytes = {10, 10, 10, 10}, .prefetch_bytes = 10});
  using Ahead = std::vector<Units>;
  const auto ahead = [&] {
    Trace forward;
    for (std::size_t module = 0; module < 4; ++module) forward.push_back({module, Visit::Direction::forward});
    Ahead result;
    for (const Wanted& answer : pass(planner, kTrain, forward)) result.push_back(answer.ahead);
    return result;
  };
  (void)ahead();  // recorded
  EXPECT_EQ(ahead(), (Ahead{{0}, {1}, {2}, {3}, {}}));
  planner.set_prefetch_bytes(25);
  EXPECT_EQ(ahead(), (Ahead{{0, 1}, {1, 2}, {2, 3}, {3}, {}}));
  planner.set_prefetch_bytes(10);
  EXPECT_EQ(ahead(), (Ahead{{0}, {1}, {2}, {3}, {}}));
}

// What is ahead, found by walking all of the pass that is left.
Units walked(const PassPlanner::Options& options, const Trace& trace, std::size_t position, const Units& now) {
  Units ahead;
  std::int64_t left = options.prefetch_bytes;
  const auto holds = [](const Units& units, std::size_t unit) { return std::ranges::count(units, unit) > 0; };
  for (std::size_t i = position; i < trace.size(); ++i)
    for (const std::size_t unit : options.units_of_module[trace[i].module]) {
      if (options.unit_bytes[unit] == 0 || holds(now, unit) || holds(ahead, unit)) continue;
      if (options.unit_bytes[unit] > left) return ahead;
      left -= options.unit_bytes[unit];
      ahead.push_back(unit);
    }
  return ahead;
}

TEST(PassPlanner, TellsOfAnyPassWhatAWalkOverItFinds) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
    const std::size_t units = 1 + below(8), modules = 1 + below(8);
    PassPlanner::Options options;
    for (std::size_t u = 0; u < units; ++u) options.unit_bytes.push_back(static_cast<std::int64_t>(below(4) * 10));
    for (std::size_t m = 0; m < modules; ++m) {
      std::set<std::size_t> needed;
      for (std::size_t i = below(4); i > 0; --i) needed.insert(below(units));
      options.units_of_module.emplace_back(needed.begin(), needed.end());
      std::shuffle(options.units_of_module.back().begin(), options.units_of_module.back().end(), random);
    }
    options.prefetch_bytes = static_cast<std::int64_t>(below(100));
    PassPlanner planner(options);
    Trace trace;
    for (std::size_t i = below(30); i > 0; --i) trace.push_back({below(modules), Visit::Direction::forward});
    (void)pass(planner, kTrain, trace);
    for (int i = 0; i < 2; ++i) {
      planner.set_prefetch_bytes(options.prefetch_bytes = static_cast<std::int64_t>(below(100)));
      const auto answers = pass(planner, kTrain, trace);
      for (std::size_t at = 0; at < answers.size(); ++at)
        ASSERT_EQ(answers[at].ahead, walked(options, trace, at, answers[at].now)) << "seed " << seed << ", " << at;
    }
  }
}

// Turns of the planner's loops in the second pass over a row of modules.
std::int64_t work_of_a_pass(std::size_t modules, std::int64_t unit_bytes, std::int64_t prefetch_bytes) {
  auto options = row(modules, prefetch_bytes);
  options.unit_bytes.assign(modules, unit_bytes);
  PassPlanner planner(options);
  std::vector<std::size_t> all(modules);
  std::iota(all.begin(), all.end(), std::size_t{0});
  const Trace trace = forward_and_back(all);
  std::int64_t before = 0;
  std::size_t told = 0;
  for (int i = 0; i < 2; ++i) {
    before = work_count();
    const auto count = [&](const PassPlanner::Wanted& wanted) {
      told += wanted.now.size() + wanted.ahead.size() + wanted.gone.size();
    };
    count(planner.begin(kTrain));
    for (const Visit& visit : trace) count(planner.visit(visit));
    planner.end();
  }
  return work_count() - before + static_cast<std::int64_t>(told);
}

TEST(PassPlanner, TenTimesTheUnitsAreTenTimesTheWork) {
  for (const std::int64_t unit_bytes : {0, 10})
    for (const std::int64_t prefetch_bytes : {0, 200, 1'000'000}) {
      const std::int64_t few = work_of_a_pass(200, unit_bytes, prefetch_bytes);
      const std::int64_t many = work_of_a_pass(2000, unit_bytes, prefetch_bytes);
      EXPECT_GT(few, 0);
      EXPECT_LE(many, 11 * few) << unit_bytes << " bytes a unit, " << prefetch_bytes << " ahead";
    }
}

}  // namespace
}  // namespace zeepo
