// A program of one's own from init to close, alone and on ranks that are threads.
#include "zeepo/runtime/runtime.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/nn/layers.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/loss.h"
#include "zeepo/runtime/init.h"

namespace zeepo {
namespace {

// x: (N, 4)   y: (N, 2)
class Net : public Module {
 public:
  Tensor forward(const Tensor& x) override { return out_(relu(in_(x))); }

 private:
  Module& in_ = child<Linear>("in", 4, 32);
  Module& out_ = child<Linear>("out", 32, 2);
};
constexpr std::int64_t kParams = 4 * 32 + 32 + 32 * 2 + 2;

RuntimeOptions small() {
  return {.backend = Backend::cpu,
          .threads = 1,
          .device_bytes = 16 << 20,
          .host_bytes = 16 << 20,
          .report = ReportAs::nothing};
}

// Whether the first number of a row is positive: learned from eight rows a step.
float train(ModelEngine& engine, Net& model, std::int64_t steps) {
  engine.load(random_weights(1));
  float loss = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    std::vector<float> x;
    std::vector<std::int32_t> y;
    for (std::uint64_t i = 0; i < 32; ++i) x.push_back(normal(RngKey{7}, i));
    for (std::size_t row = 0; row < 8; ++row) y.push_back(x[row * 4] > 0);
    engine.micro_step([&] {
      return cross_entropy(model(Tensor::from<float>(x, {8, 4})), Tensor::from<std::int32_t>(y, {8}));
    });
    loss = engine.step(0.05).loss;
  }
  return loss;
}

std::int64_t peak(const nlohmann::ordered_json& report, std::size_t rank, const char* tier, const char* kind) {
  return report.at("ranks").at(rank).at("peak_bytes").at(tier).at(kind).get<std::int64_t>();
}

TEST(Runtime, TrainsAModelOfOnesOwnAndReportsWhereItsBytesWere) {
  Runtime runtime(small());
  EXPECT_EQ(runtime.rank(), 0);
  EXPECT_EQ(runtime.size(), 1);
  Net model;
  AttachedEngine engine(runtime, model, {.placement = {.params = {}, .optimizer = Shares::all_in(Place::host)}});
  EXPECT_LT(train(*engine, model, 40), 0.1f);
  const auto report = runtime.close();
  EXPECT_EQ(report.at("params"), kParams);
  EXPECT_EQ(report.at("world_size"), 1);
  EXPECT_EQ(report.at("device"), "cpu");
  EXPECT_GE(peak(report, 0, "host", "optimizer"), kParams * 8);
  EXPECT_EQ(peak(report, 0, "device", "optimizer"), 0);
  EXPECT_GT(report["ranks"][0]["link_bytes"]["host_to_device"].get<std::int64_t>(), 0);
  EXPECT_TRUE(names(error_text([&] { engine->settle(); }), "ended when the runtime was closed"));
  EXPECT_TRUE(names(error_text([&] { (void)runtime.session(); }), "closed"));
  EXPECT_TRUE(names(error_text([&] { runtime.close(); }), "closed already"));
}

TEST(Runtime, PutsStatesIntoFilesWithinTheirBudget) {
  const TestDirectory directory;
  RuntimeOptions options = small();
  options.nvme_paths = {directory.path()};
  options.nvme_bytes = 64 << 20;
  options.host_bytes = 128 << 20;
  Runtime runtime(options);
  Net model;
  AttachedEngine engine(runtime, model, {.placement = {.params = {}, .optimizer = Shares::all_in(Place::nvme)}});
  EXPECT_LT(train(*engine, model, 40), 0.1f);
  const auto report = runtime.close();
  EXPECT_GE(peak(report, 0, "nvme", "optimizer"), kParams * 8);
  EXPECT_GT(report["ranks"][0]["io_bytes"]["read"].get<std::int64_t>(), 0);
}

TEST(Runtime, GivesEveryRankTheReportOfAll) {
  constexpr int kRanks = 3;
  std::vector<nlohmann::ordered_json> reports(kRanks);
  ThreadsWorld world(kRanks);
  run(world, [&](Communicator& ranks) {
    Runtime runtime(small(), ranks);
    Net model;
    AttachedEngine engine(runtime, model, {.stage = 3});
    EXPECT_LT(train(*engine, model, 40), 0.1f);
    reports[static_cast<std::size_t>(ranks.rank())] = runtime.close();
  });
  EXPECT_EQ(reports[1], reports[0]);
  EXPECT_EQ(reports[2], reports[0]);
  EXPECT_EQ(reports[0].at("world_size"), kRanks);
  ASSERT_EQ(reports[0].at("ranks").size(), std::size_t{kRanks});
  for (std::size_t r = 0; r < kRanks; ++r) {
    EXPECT_EQ(reports[0]["ranks"][r]["rank"], r);
    EXPECT_GT(reports[0]["ranks"][r]["comm_bytes"]["all_gather"].get<std::int64_t>(), 0);
  }
}

TEST(Runtime, CountsWhatEnginesSentThatEndedBeforeIt) {
  ThreadsWorld world(2);
  run(world, [&](Communicator& ranks) {
    Runtime runtime(small(), ranks);
    CommBytes sent;
    {
      Net model;
      AttachedEngine engine(runtime, model, {.stage = 1});
      train(*engine, model, 2);
      engine->settle();
      sent = engine->moved().all().sent;
    }
    const auto report = runtime.close();
    EXPECT_EQ(report.at("params"), kParams);
    EXPECT_GT(sent.reduce_scatter, 0);
    EXPECT_EQ(report["ranks"][0]["comm_bytes"]["reduce_scatter"], sent.reduce_scatter);
  });
}

TEST(Runtime, TellsEveryRankOfATensorThatOneStillHolds) {
  ThreadsWorld world(2);
  run(world, [&](Communicator& ranks) {
    Runtime runtime(small(), ranks);
    Tensor kept;
    if (ranks.rank() == 1) kept = Tensor::from<float>(std::vector<float>(1024), {1024});
    EXPECT_TRUE(names(error_text([&] { runtime.close(); }), "rank 1: device memory: activations 4.00 KiB"));
    EXPECT_TRUE(runtime.closed());
  });
}

TEST(Runtime, AnEngineMayGoByAnExceptionBeforeTheRuntime) {
  Runtime runtime(small());
  const auto fail = [&] {
    Net model;
    AttachedEngine engine(runtime, model, {});
    train(*engine, model, 1);
    throw Error("the data end here");
  };
  EXPECT_TRUE(names(error_text(fail), "the data end here"));
  EXPECT_EQ(runtime.close().at("params"), kParams);
}

TEST(Runtime, NamesOptionsThatCannotBe) {
  const auto text = [](auto change) {
    RuntimeOptions options = small();
    change(options);
    return error_text([&] { Runtime{options}; });
  };
  EXPECT_TRUE(names(text([](auto& o) { o.threads = -1; }), "threads -1", "at least 0"));
  EXPECT_TRUE(names(text([](auto& o) { o.host_bytes = -5; }), "host_bytes -5"));
  EXPECT_TRUE(names(text([](auto& o) { o.nvme_bytes = 4096; }), "nvme_bytes 4096", "0 nvme_paths"));
  EXPECT_TRUE(names(text([](auto& o) { o.nvme_paths = {"/"}; }), "nvme_bytes 0", "1 nvme_paths"));
  EXPECT_TRUE(names(text([](auto& o) { o.carrier = Carrier::nccl; }), "NCCL", "Backend::cuda"));
}

TEST(Init, OpensOneRuntimeAndCloseEndsIt) {
  EXPECT_TRUE(names(error_text([] { close(); }), "no runtime is open"));
  EXPECT_TRUE(names(error_text([] { runtime(); }), "there is none"));
  for (int run = 0; run < 2; ++run) {
    const Runtime& made = init(small());
    EXPECT_EQ(&runtime(), &made);
    EXPECT_TRUE(names(error_text([] { init(small()); }), "open already"));
    Net model;
    auto engine = attach(model);
    EXPECT_LT(train(*engine, model, 40), 0.1f);
    EXPECT_EQ(close().at("params"), kParams);
  }
  EXPECT_TRUE(names(error_text([] { close(); }), "no runtime is open"));
}

TEST(Init, ATensorThatIsStillHeldCanGoAfterClose) {
  init(small());
  Tensor kept = Tensor::from<float>(std::vector<float>(256), {256});
  EXPECT_TRUE(names(error_text([] { close(); }), "still held", "activations 1.00 KiB"));
  kept = {};
  init(small());
  close();
}

TEST(Init, RunJobReturnsWhatMainReturns) {
  EXPECT_EQ(run_job(small(), [](Runtime&) {}), 0);
  EXPECT_EQ(run_job(small(), [](Runtime&) { throw Error("no disk"); }), 1);
  EXPECT_EQ(run_job(small(), [](Runtime&) { throw UsageError("which file?"); }), 2);
  EXPECT_EQ(run_job(small(), [](Runtime&) { init(small()); }), 1);
  EXPECT_EQ(run_job(small(), [](Runtime&) {}), 0);  // nothing is left open by those that failed
}

TEST(InitDeathTest, WhatNobodyCatchesEndsTheJobWithOneLine) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        init(small());
        std::thread([] { throw Error("the disk is full"); }).join();
      },
      testing::ExitedWithCode(1), "zeepo: rank 0: the disk is full");
}

}  // namespace
}  // namespace zeepo
