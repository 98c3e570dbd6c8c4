#include "zeepo/train/tuner.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_model.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

const TuningRange kRange{{100, 200, 400, 800}, {4, 8}};

// Steps whose stalls follow from the depths; the settings one after another, and the last.
std::vector<Depths> settings(Tuner& tuner, const std::function<double(const Depths&)>& stalls) {
  std::vector<Depths> seen{tuner.depths()};
  for (int step = 0; step < 40 && !tuner.settled(); ++step)
    if (tuner.after({stalls(tuner.depths()), 1.0}) && tuner.depths() != seen.back()) seen.push_back(tuner.depths());
  EXPECT_TRUE(tuner.settled());
  return seen;
}

TEST(Tuner, LeavesARunAloneThatDoesNotWait) {
  Tuner tuner(kRange);
  EXPECT_EQ(settings(tuner, [](const Depths&) { return 0.005; }), (std::vector<Depths>{{100, 4}}));
}

TEST(Tuner, TurnsUpWhatHelpsAndBackWhatDoesNot) {
  Tuner tuner(kRange);
  const auto seen = settings(tuner, [](const Depths& d) {
    return d.prefetch_bytes >= 400 ? 0.1 : 60.0 / static_cast<double>(d.prefetch_bytes);
  });
  EXPECT_EQ(seen, (std::vector<Depths>{{100, 4}, {200, 4}, {400, 4}, {800, 4}, {400, 8}, {400, 4}}));
}

TEST(Tuner, TurnsUpPiecesToo) {
  Tuner tuner(kRange);
  const auto seen = settings(tuner, [](const Depths& d) { return d.pieces_under_way == 8 ? 0.2 : 0.5; });
  EXPECT_EQ(seen, (std::vector<Depths>{{100, 4}, {200, 4}, {100, 8}}));
}

TEST(Tuner, ClimbsFromWhereAnotherRunHadCome) {
  Tuner tuner(kRange);
  tuner.start_at({500, 4, 0});  // between two levels
  const auto seen = settings(tuner, [](const Depths& d) { return d.prefetch_bytes >= 400 ? 0.1 : 0.5; });
  EXPECT_EQ(seen, (std::vector<Depths>{{400, 4}, {800, 4}, {400, 8}, {400, 4}}));
  Tuner other({{100, 200}, {4}, {0, 0.5}});  // a machine with less room
  other.start_at({800, 8, 0.9});
  EXPECT_EQ(other.depths(), (Depths{200, 4, 0.5}));
}

TEST(Tuner, StopsWhereThereAreNoMoreLevels) {
  Tuner tuner(kRange);
  const auto seen = settings(
      tuner, [](const Depths& d) { return 1.0 / static_cast<double>(d.prefetch_bytes * d.pieces_under_way) * 100; });
  EXPECT_EQ(seen.back(), (Depths{800, 8}));
  Tuner nothing({{100}, {4}});
  EXPECT_TRUE(nothing.settled());
  EXPECT_FALSE(nothing.after({1, 1}));
}

TEST(Tuner, MeasuresNoStepThatIsNotLikeLaterOnes) {
  Tuner tuner(kRange);
  EXPECT_FALSE(tuner.after({9, 10}));  // recorded
  EXPECT_FALSE(tuner.after({9, 10}));  // the first to run ahead
  EXPECT_TRUE(tuner.after({5, 10}));
  EXPECT_FALSE(tuner.after({9, 10}));  // after a change
  EXPECT_TRUE(tuner.after({4, 10}));
  EXPECT_EQ(tuner.depths(), (Depths{400, 4}));
  EXPECT_EQ(tuner.measured().stalled_seconds, 4);
}

// A step that was skipped has no update, for which the next one would wait.
TEST(StepMeter, MeasuresNoStepAroundOneThatWasSkipped) {
  StepMeter meter;
  meter.add({4, 10, 2}, false);
  meter.add({0, 99}, true);
  meter.add({0, 99}, true);
  meter.add({0, 99}, false);
  meter.add({6, 12, 4}, false);
  EXPECT_EQ(meter.steps(), 2);
  const Measured mean = meter.take();
  EXPECT_EQ(mean.stalled_seconds, 5);
  EXPECT_EQ(mean.seconds, 11);
  EXPECT_EQ(mean.host_seconds, 3);
  EXPECT_EQ(meter.steps(), 0);
  meter.add({1, 2}, false);
  EXPECT_EQ(meter.take().seconds, 2);
}

// A share of the host is worth the time that a step takes, whatever it waits meanwhile.
TEST(Tuner, LetsTheHostStepAsLongAsStepsGetFaster) {
  const TuningRange range{{100, 200}, {4}, {0, 0.2, 0.4, 0.6}};
  const auto tuned = [&](const std::function<double(double)>& seconds) {
    Tuner tuner(range);
    for (int step = 0; step < 60 && !tuner.settled(); ++step)
      (void)tuner.after({0.5, seconds(tuner.depths().host_share), 0.5});
    EXPECT_TRUE(tuner.settled());
    return tuner.depths();
  };
  EXPECT_EQ(tuned([](double share) { return 10 - share; }), (Depths{100, 4, 0.6}));
  EXPECT_EQ(tuned([](double share) { return share > 0.5 ? 12.0 : 10 - share; }), (Depths{100, 4, 0.4}));
  EXPECT_EQ(tuned([](double share) { return 10 + share; }), (Depths{100, 4, 0}));
  EXPECT_EQ(tuned([](double share) { return 10 - 0.01 * share; }), (Depths{100, 4, 0})) << "within the noise";
}

TEST(Tuner, MeasuresNoStepWhoseBuffersStartedEmpty) {
  Tuner tuner({{100}, {4}, {0, 0.5}});
  EXPECT_FALSE(tuner.after({9, 10, 9}));
  EXPECT_FALSE(tuner.after({9, 10, 9}));
  EXPECT_TRUE(tuner.after({9, 10, 9}));
  EXPECT_EQ(tuner.depths().host_share, 0.5);
  EXPECT_FALSE(tuner.after({9, 20, 9}));  // turns to it at its end
  EXPECT_FALSE(tuner.after({9, 20, 9}));  // reads all anew
  EXPECT_TRUE(tuner.after({9, 9, 9}));
  EXPECT_EQ(tuner.depths().host_share, 0.5);
  EXPECT_TRUE(tuner.settled());
}

TEST(Tuner, LeavesTheHostAloneWhereStepsWaitForOthers) {
  Tuner tuner({{100}, {4}, {0, 0.5}});
  for (int step = 0; step < 3; ++step) (void)tuner.after({9, 10, 0.05});
  EXPECT_TRUE(tuner.settled());
  EXPECT_EQ(tuner.depths().host_share, 0);
}

// Each rank has its own; what they do when is the same.
TEST(Tuner, TurnsToTheHostsShareThatWasProposedLast) {
  Tuner one({{100}, {4}, {0, 1}}), other({{100}, {4}, {0, 1}});
  for (int step = 0; step < 9; ++step) {
    one.propose_host_share(0.25 * step);
    other.propose_host_share(0);
    (void)one.after({9, 10.0 - step, 9});
    (void)other.after({9, 10.0 - step, 9});
    EXPECT_EQ(one.settled(), other.settled()) << step;
  }
  EXPECT_TRUE(one.settled());
  EXPECT_EQ(one.depths().host_share, 0.5);  // of the third step
  EXPECT_EQ(other.depths().host_share, 0);
}

class TunedRuns : public testing::Test {
 protected:
  // Everything in files behind slow links, with little ahead.
  TrainOptions options() const {
    TrainOptions options = directory_.options();
    options.seq_len = 16;
    options.steps = 14;
    options.stage = 3;
    options.prefetch_bytes = 1 << 20;
    options.placement = {Shares::all_in(Place::host), Shares::all_in(Place::nvme), Place::device};
    options.nvme_paths = {directory_.path()};
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.link_bytes_per_second = 400e6;
    options.nvme_bytes_per_second = 400e6;
    options.device_bytes = 64 << 20;
    options.host_bytes = 200 << 20;
    return options;
  }

  std::vector<Json> train(const TrainOptions& given, int ranks) const {
    ::testing::internal::CaptureStderr();
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) { Trainer(given, communicator).run(); });
    ::testing::internal::GetCapturedStderr();
    std::ifstream lines(given.log);
    std::vector<Json> events;
    for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
    return events;
  }

  ScratchModel directory_{128, 6, 512, 1000};
};

TEST_F(TunedRuns, KeepTheirBitsAndTheirPlan) {
  for (const int ranks : {1, 3}) {
    TrainOptions fixed = options(), tuned = options();
    tuned.tune = {.prefetch = true, .pieces = true};
    const auto reference = train(fixed, ranks), events = train(tuned, ranks);
    EXPECT_EQ(events.back().at("weights_hash"), reference.back().at("weights_hash"));
    EXPECT_EQ(events.back().at("loss"), reference.back().at("loss"));
    const auto bytes = [](const Json& of, const char* tier) {
      return of.at(tier).at("arena_bytes").get<std::int64_t>();
    };
    EXPECT_GT(bytes(events.front(), "device"), bytes(reference.front(), "device")) << "nothing is planned for";
    EXPECT_GT(bytes(events.front(), "host"), bytes(reference.front(), "host"));
    EXPECT_LE(bytes(events.front(), "device"), tuned.device_bytes);
    for (const auto& rank : events.back().at("ranks"))
      for (const char* tier : {"device", "host"})
        EXPECT_LE(rank.at("peak_bytes").at(tier).at("total").get<std::int64_t>(), bytes(events.front(), tier)) << tier;
    std::int64_t tunes = 0;
    for (const auto& event : events)
      if (event.at("event") == "tune") {
        ++tunes;
        EXPECT_GE(event.at("prefetch_bytes").get<std::int64_t>(), tuned.prefetch_bytes);
        EXPECT_GE(event.at("pieces_under_way").get<std::int64_t>(), 1);
        EXPECT_TRUE(event.at("settled").is_boolean());
      }
    EXPECT_GE(tunes, 1);
    for (const auto& event : reference) EXPECT_NE(event.at("event"), "tune");
  }
}

// No address lies beyond the plan, whichever levels are tried.
TEST_F(TunedRuns, RunInMemoryThatIsJustAsLargeAsThePlan) {
  TrainOptions tuned = options();
  tuned.tune = {.prefetch = true, .pieces = true};
  const auto planned = train(tuned, 1).front();
  tuned.device_bytes = planned.at("device").at("arena_bytes");
  tuned.host_bytes = planned.at("host").at("arena_bytes");
  const auto again = train(tuned, 1);
  EXPECT_EQ(again.front().at("device").at("arena_bytes"), planned.at("device").at("arena_bytes"));
  EXPECT_EQ(again.back().at("event"), "summary");
}

TEST_F(TunedRuns, StayWithinBudgetsThatHaveNoRoom) {
  TrainOptions tuned = options();
  tuned.steps = 4;
  const auto plan = train(tuned, 1).front();
  tuned.device_bytes = plan.at("device").at("arena_bytes");
  tuned.host_bytes = plan.at("host").at("arena_bytes");
  tuned.tune = {.prefetch = true, .pieces = true};
  const auto events = train(tuned, 1);
  EXPECT_LE(events.front().at("device").at("arena_bytes").get<std::int64_t>(), tuned.device_bytes);
  EXPECT_LE(events.front().at("host").at("arena_bytes").get<std::int64_t>(), tuned.host_bytes);
}

}  // namespace
}  // namespace zeepo
