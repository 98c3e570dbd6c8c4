// Shares of the batch by speed: the samples of a step and its mean stay as they are.
#include "zeepo/train/balance.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Rows = std::vector<std::int64_t>;
using Json = nlohmann::json;

TEST(Balance, RowsFollowSpeeds) {
  const auto shares = [](std::int64_t rows, const std::vector<double>& speeds) { return share_rows(rows, speeds); };
  EXPECT_EQ(shares(8, {1, 1}), (Rows{4, 4}));
  EXPECT_EQ(shares(12, {1, 0.5}), (Rows{8, 4}));
  EXPECT_EQ(shares(12, {0.5, 1, 0.5, 1}), (Rows{2, 4, 2, 4}));
  EXPECT_EQ(shares(4, {1, 1, 1, 1e-9}), (Rows{1, 1, 1, 1}));  // none without a row: all take part in all sums
  EXPECT_EQ(shares(2, {3, 1}), (Rows{1, 1}));
  for (const std::int64_t rows : {5, 17, 100}) {
    const std::vector<double> speeds{1, 0.35, 0.8, 0.05, 0.6};
    const Rows given = shares(rows, speeds);
    EXPECT_EQ(std::accumulate(given.begin(), given.end(), std::int64_t{0}), rows);
    // No rank would be done sooner with a row of the last one's, if that has one to give.
    double last = 0;
    for (std::size_t r = 0; r < given.size(); ++r)
      if (given[r] > 1) last = std::max(last, static_cast<double>(given[r]) / speeds[r]);
    for (std::size_t r = 0; r < given.size(); ++r)
      EXPECT_GE(static_cast<double>(given[r] + 1) / speeds[r], last) << rows << " rows, rank " << r;
  }
}

TEST(Balance, SpeedsAreTakenInTwentiethsOfTheFastest) {
  EXPECT_EQ(relative_speeds(std::vector{200.0, 100.0, 97.6, 1.0}), (std::vector{1.0, 0.5, 0.5, 0.05}));
  EXPECT_EQ(relative_speeds(std::vector{98.0, 100.0}), (std::vector{1.0, 1.0}));
}

struct BalancedRun {
  std::vector<double> losses, norms;
  Json plan, summary;
};

class BalancedRuns : public testing::Test {
 protected:
  TrainOptions options(const std::string& balance) const {
    const auto directory = std::filesystem::path(kTestData) / "golden" / "llama-tiny";
    TrainOptions options;
    options.model = directory;
    options.data = directory / "tokens.bin";
    options.seq_len = 16;
    options.micro_batch = 4;
    options.grad_accum = 2;
    options.steps = 3;
    options.threads = 1;
    options.stage = 3;
    options.device_bytes = options.host_bytes = 64 << 20;
    assign(options, "--balance", balance);
    return options;
  }

  BalancedRun train(TrainOptions options, int ranks) const {
    options.log = (directory_.path() / "log.jsonl").string();
    testing::internal::CaptureStderr();
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    testing::internal::GetCapturedStderr();
    BalancedRun record;
    std::ifstream lines(options.log);
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == "plan") record.plan = event;
      if (event.at("event") == "summary") record.summary = event;
      if (event.at("event") != "step") continue;
      record.losses.push_back(event.at("loss"));
      record.norms.push_back(event.at("grad_norm"));
    }
    return record;
  }

 private:
  TestDirectory directory_;
};

TEST_F(BalancedRuns, TheMeanIsThatOverAllTokens) {
  const BalancedRun alike = train(options("off"), 3), shared = train(options("1,0.5,0.25"), 3);
  EXPECT_FALSE(alike.plan.contains("balance"));
  EXPECT_EQ(shared.plan.at("balance").at("rows"), (Rows{8, 3, 1}));
  ASSERT_EQ(shared.losses.size(), 3u);
  for (std::size_t i = 0; i < shared.losses.size(); ++i) {
    EXPECT_NEAR(shared.losses[i], alike.losses[i], 1e-5 * alike.losses[i]) << i;
    EXPECT_NEAR(shared.norms[i], alike.norms[i], 1e-4 * alike.norms[i]) << i;
  }
  // More rows are more activations.
  const auto activations = [&](std::size_t rank) {
    return shared.summary.at("ranks").at(rank).at("peak_bytes").at("device").at("activations").get<std::int64_t>();
  };
  EXPECT_GT(activations(0), activations(1));
  EXPECT_GT(activations(1), activations(2));
}

TEST_F(BalancedRuns, TheSameSharesGiveTheSameBitsAtEveryStage) {
  TrainOptions run = options("1,0.5");
  const BalancedRun reference = train(run, 2);
  for (const int stage : {0, 2}) {
    run.stage = stage;
    const BalancedRun other = train(run, 2);
    EXPECT_EQ(other.losses, reference.losses) << stage;
    EXPECT_EQ(other.summary.at("weights_hash"), reference.summary.at("weights_hash")) << stage;
  }
  run = options("1,1");
  EXPECT_EQ(train(run, 2).summary.at("weights_hash"), train(options("off"), 2).summary.at("weights_hash"));
}

TEST_F(BalancedRuns, MeasuredSpeedsGiveARowToEveryRank) {
  const BalancedRun measured = train(options("auto"), 2);
  const Rows rows = measured.plan.at("balance").at("rows");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0] + rows[1], 8);
  EXPECT_GE(std::min(rows[0], rows[1]), 1);
  EXPECT_FALSE(train(options("auto"), 1).plan.contains("balance"));
}

TEST_F(BalancedRuns, WhatCannotBeIsRefused) {
  EXPECT_TRUE(names(error_text([&] { options("fast"); }), "--balance", "fast"));
  EXPECT_TRUE(names(error_text([&] { options("1,0"); }), "--balance", "above 0"));
  EXPECT_TRUE(names(error_text([&] { train(options("1,1,1"), 2); }), "3 speeds", "2 ranks"));
  testing::internal::GetCapturedStderr();
  TrainOptions elastic = options("auto");
  elastic.elastic.wanted = true;
  elastic.checkpoint_dir = "checkpoints";
  EXPECT_TRUE(names(error_text([&] { check(elastic); }), "--elastic", "--balance"));
}

}  // namespace
}  // namespace zeepo
