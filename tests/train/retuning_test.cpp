// The tuner after the first steps: it watches a settled run, and tries levels again when the machine has changed.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "tests/support/forwarding_communicator.h"
#include "tests/support/scratch_model.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"
#include "zeepo/train/tuner.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

const TuningRange kRange{{100, 200, 400, 800}, {4}};

// A machine whose steps compute for a second and bring their data meanwhile. Deeper prefetching hides more of that, and
// costs some time itself.
struct Machine {
  double hidden_at(std::int64_t prefetch) const {
    return prefetch == 100 ? 0.5 : prefetch == 200 ? 0.6 : prefetch == 400 ? 0.9 : 1.0;
  }
  double cost_at(std::int64_t prefetch) const {
    return prefetch == 100 ? 0.0 : prefetch == 200 ? 0.02 : prefetch == 400 ? 0.06 : 0.25;
  }
  Measured step(const Depths& depths, double data_seconds) const {
    const double stalled = std::max(0.0, data_seconds - hidden_at(depths.prefetch_bytes));
    return {stalled, 1 + stalled + cost_at(depths.prefetch_bytes), stalled};
  }
};

struct Change {
  int step;
  Depths depths;
  double gain;
  bool settled;
  std::string why;
  friend bool operator==(const Change&, const Change&) = default;
};

// As a run does it: a settled one is measured some steps at a time.
struct Simulated {
  explicit Simulated(TuningRange range = kRange) : tuner(std::move(range)) {}

  void run(
      int until, const std::function<Measured(const Depths&)>& measure,
      const std::function<bool(int)>& skipped = [](int) { return false; }) {
    while (step < until) {
      ++step;
      meter.add(measure(tuner.depths()), skipped(step));
      if (meter.steps() < tuner.steps_to_measure()) continue;
      if (tuner.after(meter.take()))
        changes.push_back({step, tuner.depths(), tuner.gain(), tuner.settled(), tuner.why()});
    }
  }
  std::vector<Change> changes_after(int first) const {
    std::vector<Change> later;
    for (const Change& change : changes)
      if (change.step > first) later.push_back(change);
    return later;
  }

  Tuner tuner;
  StepMeter meter;
  std::vector<Change> changes;
  int step = 0;
};

TEST(Retuning, FollowsALinkThatBecomesSlowerAndThenFaster) {
  const Machine machine;
  Simulated run;
  const auto with_data = [&](double seconds) {
    return [&machine, seconds](const Depths& depths) { return machine.step(depths, seconds); };
  };
  run.run(50, with_data(0.4));  // all of it hides
  EXPECT_TRUE(run.tuner.settled());
  EXPECT_EQ(run.tuner.depths(), (Depths{100, 4}));

  run.run(150, with_data(1.0));
  EXPECT_TRUE(run.tuner.settled());
  EXPECT_EQ(run.tuner.depths(), (Depths{400, 4}));
  const auto slower = run.changes_after(50);
  ASSERT_EQ(slower.size(), 6u);
  EXPECT_GT(slower.front().step, 50 + Tuner::kWatchedSteps * DriftWatch::kPatience) << "too soon";
  EXPECT_NE(slower.front().why.find("33.3%"), std::string::npos) << slower.front().why;
  EXPECT_NE(slower.front().why.find("trying prefetch 200 B"), std::string::npos) << slower.front().why;
  EXPECT_EQ(slower.front().gain, 0);
  EXPECT_NEAR(slower[1].gain, 1 - 1.42 / 1.5, 1e-9) << slower[1].why;
  EXPECT_NE(slower[1].why.find("measuring prefetch 100 B again"), std::string::npos) << slower[1].why;
  EXPECT_NE(slower[2].why.find("kept; trying prefetch 400 B"), std::string::npos) << slower[2].why;
  EXPECT_LT(slower.back().gain, 0) << "of 800, undone";
  EXPECT_NE(slower.back().why.find("undone"), std::string::npos);

  run.run(300, with_data(0.1));
  EXPECT_TRUE(run.tuner.settled());
  EXPECT_EQ(run.tuner.depths(), (Depths{200, 4})) << "100 is only 2% faster";
  run.run(1000, with_data(0.1));
  EXPECT_EQ(run.changes_after(300).size(), 0u);
}

TEST(Retuning, NoiseChangesNothing) {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u})
    for (const double data : {0.3, 0.7, 2.0}) {
      std::mt19937 random(seed);
      std::uniform_real_distribution<double> noise(0.9, 1.1);
      Simulated run;
      int noisy = 0;
      const auto measure = [&](const Depths& depths) {
        Measured step = Machine().step(depths, data);
        const double longer = noise(random) * (++noisy % 41 == 0 ? 8 : 1);  // and a page cache that is written out
        return Measured{step.stalled_seconds * longer * noise(random), step.seconds * longer, 0};
      };
      run.run(60, measure);
      EXPECT_TRUE(run.tuner.settled());
      run.run(5000, measure);
      EXPECT_EQ(run.changes_after(60).size(), 0u) << seed << ", " << data;
    }
}

TEST(Retuning, ASlowSpellThatPassesChangesNothing) {
  Simulated run;
  const auto quick = [](const Depths& depths) { return Machine().step(depths, 0.4); };
  const auto slow = [](const Depths& depths) { return Machine().step(depths, 2.0); };
  run.run(60, quick);
  for (int spell = 0; spell < 20; ++spell) {
    run.run(run.step + 12, slow);
    run.run(run.step + 60, quick);
  }
  EXPECT_EQ(run.changes_after(60).size(), 0u);
}

TEST(Retuning, UndoesWhatLosesAndTriesLessAndLessOften) {
  Simulated run;
  // Nothing but the first level is any good, however long steps wait.
  const auto with_stalls = [](double seconds) {
    return [seconds](const Depths& depths) {
      const double worse = depths.prefetch_bytes > 100 ? 0.5 : 0;
      return Measured{seconds + worse, 1 + seconds + worse, 0};
    };
  };
  run.run(60, with_stalls(0.2));
  std::vector<int> searches;
  bool slow = true;
  while (run.step < 30000) {
    run.run(run.step + 80, with_stalls(slow ? 0.8 : 0.2));
    slow = !slow;
  }
  EXPECT_EQ(run.tuner.depths(), (Depths{100, 4}));
  const auto changes = run.changes_after(60);
  ASSERT_GE(changes.size(), 4u);
  for (const Change& change : changes) {
    if (!change.settled) {
      if (change.gain == 0) searches.push_back(change.step);  // the first of a search
      continue;
    }
    EXPECT_EQ(change.why.find("kept"), std::string::npos) << change.why;
    EXPECT_EQ(change.depths, (Depths{100, 4}));
  }
  EXPECT_LE(searches.size(), 20u) << "of 375 times that the link changed";
  EXPECT_GT(searches.back() - searches[searches.size() - 2], 10 * (searches[1] - searches[0]));
}

TEST(Retuning, GivesTheHostLessAgainWhenTheLinkIsFast) {
  Simulated run({{100}, {4}, {0, 0.5}});
  const auto with_link = [](double seconds) {
    return [seconds](const Depths& depths) {
      const double link = seconds * (1 - depths.host_share), stalled = std::max(0.0, link - 0.1);
      return Measured{stalled, 1 + stalled + 0.2 * depths.host_share, stalled};
    };
  };
  run.run(100, with_link(1.0));
  EXPECT_EQ(run.tuner.depths().host_share, 0.5);
  run.run(400, with_link(0.1));
  EXPECT_EQ(run.tuner.depths().host_share, 0);
  run.run(700, with_link(1.0));
  EXPECT_EQ(run.tuner.depths().host_share, 0.5);
}

TEST(Retuning, SkippedStepsAreNotMeasured) {
  Simulated run;
  const auto skipped = [](int step) { return step % 5 == 0; };
  run.run(
      60, [](const Depths& depths) { return Machine().step(depths, 0.8); }, skipped);
  EXPECT_TRUE(run.tuner.settled());
  const auto settled = run.tuner.depths();
  int step = run.step;
  run.run(
      3000,
      [&](const Depths& depths) {  // as long as they like, and the step after them too
        ++step;
        return skipped(step) || skipped(step - 1) ? Measured{9, 50, 9} : Machine().step(depths, 0.8);
      },
      skipped);
  EXPECT_EQ(run.changes_after(60).size(), 0u);
  EXPECT_EQ(run.tuner.depths(), settled);
}

TEST(Retuning, RanksThatAreToldTheSameDecideTheSame) {
  Simulated one, other;
  std::mt19937 random(9);
  std::uniform_real_distribution<double> noise(0.8, 1.2);
  for (int step = 1; step <= 4000; ++step) {
    const double data = 0.3 + 0.5 * (step / 100 % 3), times = noise(random);
    const auto measure = [&](const Depths& depths) {
      const Measured exact = Machine().step(depths, data);
      return Measured{exact.stalled_seconds * times, exact.seconds * times, 0};
    };
    one.run(step, measure);
    other.run(step, measure);
  }
  EXPECT_GT(one.changes.size(), 4u);
  EXPECT_EQ(one.changes, other.changes);
}

// Ranks whose link becomes slow in the run: each gather takes its time from a step on.
class SlowingRanks final : public ForwardingCommunicator {
 public:
  SlowingRanks(Communicator& ranks, int first_slow_step)
      : ForwardingCommunicator(ranks), first_slow_step_(first_slow_step) {}

  void all_gather(CpuStream& stream, ConstView shard, View full, const Label& label) override {
    if (label.what == "gradient norms") ++steps_;
    if (steps_ >= first_slow_step_) std::this_thread::sleep_for(std::chrono::milliseconds(4));
    ForwardingCommunicator::all_gather(stream, shard, full, label);
  }

 private:
  const int first_slow_step_;
  std::atomic<int> steps_ = 0;
};

TEST(Retuning, ARunWhoseLinkBecomesSlowKeepsItsBits) {
  constexpr int kSlowFrom = 60;
  const ScratchModel directory(128, 6, 512, 1000);
  TrainOptions fixed = directory.options();
  fixed.seq_len = 8;
  fixed.steps = 120;
  fixed.stage = 3;
  fixed.prefetch_bytes = 1 << 20;
  fixed.device_bytes = 64 << 20;
  fixed.host_bytes = 200 << 20;
  TrainOptions tuned = fixed;
  tuned.tune = {.prefetch = true, .pieces = true};
  const auto train = [&](const TrainOptions& options, int slow_from) {
    ::testing::internal::CaptureStderr();
    ThreadsWorld world(2);
    run(world, [&](Communicator& communicator) {
      SlowingRanks slowing(communicator, slow_from);
      Trainer(options, slowing).run();
    });
    ::testing::internal::GetCapturedStderr();
    std::vector<Json> steps, tunes;
    std::ifstream lines(options.log);
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == "step") steps.push_back({event.at("loss"), event.at("grad_norm")});
      if (event.at("event") == "tune") tunes.push_back(event);
      if (event.at("event") == "summary") steps.push_back(event.at("weights_hash"));
    }
    return std::pair(steps, tunes);
  };
  const auto [expected, none] = train(fixed, fixed.steps + 1);
  const auto [steps, tunes] = train(tuned, kSlowFrom);
  EXPECT_EQ(steps, expected);
  EXPECT_TRUE(none.empty());
  // Whether it is tuned again depends on how fast this machine computes beside that link: the simulated machines above
  // show when.
  for (const Json& tune : tunes) {
    EXPECT_FALSE(tune.at("why").get<std::string>().empty());
    EXPECT_TRUE(tune.at("gain").is_number());
    EXPECT_GE(tune.at("prefetch_bytes").get<std::int64_t>(), tuned.prefetch_bytes);
  }
}

}  // namespace
}  // namespace zeepo
