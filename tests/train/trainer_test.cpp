#include "zeepo/train/trainer.h"

#include <cmath>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

// What a run writes to its log, and nothing on the terminal.
std::vector<nlohmann::json> run_logged(TrainOptions options) {
  const TestDirectory directory;
  options.log = (directory.path() / "log.jsonl").string();
  ::testing::internal::CaptureStderr();
  try {
    Trainer(options).run();
  } catch (...) {
    ::testing::internal::GetCapturedStderr();
    throw;
  }
  ::testing::internal::GetCapturedStderr();
  std::vector<nlohmann::json> events;
  std::ifstream lines(options.log);
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
  return events;
}

TrainOptions golden_options(const Golden& golden) {
  TrainOptions options;
  options.model = golden.directory;
  options.data = golden.directory / "tokens.bin";
  options.seq_len = golden.seq();
  options.micro_batch = golden.batch();
  options.steps = golden.steps();
  options.order = Order::as_is;
  options.threads = 2;
  options.optimizer = golden.optimizer();
  options.schedule.lr = golden.lr();
  options.device_bytes = 1 << 28;
  return options;
}

std::vector<nlohmann::json> of_steps(const std::vector<nlohmann::json>& events, const char* key) {
  std::vector<nlohmann::json> values;
  for (const auto& event : events)
    if (event.at("event") == "step") values.push_back(event.at(key));
  return values;
}

TEST(Trainer, TheLogTellsThePlanEachStepAndASummary) {
  const Golden golden = load_golden("golden/gpt2-tiny");
  const auto events = run_logged(golden_options(golden));
  ASSERT_EQ(events.size(), 14u);
  EXPECT_EQ(events.front().at("event"), "plan");
  const std::vector<double> expected = golden.values.at("losses");
  for (std::size_t i = 0; i < 12; ++i) {
    const auto& step = events[i + 1];
    EXPECT_EQ(step.at("event"), "step");
    EXPECT_EQ(step.at("step"), i + 1);
    EXPECT_NEAR(step.at("loss").get<double>(), expected[i], 1e-5 * expected[i]);
    EXPECT_EQ(step.at("tokens"), golden.batch() * golden.seq());
    for (const char* key : {"grad_norm", "lr", "seconds", "tokens_per_second", "tflops"})
      EXPECT_TRUE(step.at(key).is_number()) << key;
    for (const char* key : {"gather", "host", "nvme", "step"})
      EXPECT_TRUE(step.at("stall_seconds").at(key).is_number());
  }
  const auto& summary = events.back();
  EXPECT_EQ(summary.at("event"), "summary");
  EXPECT_EQ(summary.at("loss"), events[12].at("loss"));
  EXPECT_EQ(summary.at("params"), golden.values.at("params"));
  EXPECT_EQ(summary.at("world_size"), 1);
  EXPECT_FALSE(summary.at("weights_hash").get<std::string>().empty());
  const auto& rank = summary.at("ranks").at(0);
  EXPECT_EQ(rank.at("rank"), 0);
  for (const char* tier : {"device", "host", "nvme"})
    for (const char* kind : {"params", "grads", "optimizer", "activations", "working", "total"})
      EXPECT_TRUE(rank.at("peak_bytes").at(tier).at(kind).is_number()) << tier << kind;
  for (const char* key : {"all_gather", "reduce_scatter", "all_reduce"}) EXPECT_EQ(rank.at("comm_bytes").at(key), 0);
  for (const char* key : {"host_to_device", "device_to_host"}) EXPECT_TRUE(rank.at("link_bytes").at(key).is_number());
  for (const char* key : {"read", "write"}) EXPECT_TRUE(rank.at("io_bytes").at(key).is_number());
  EXPECT_GT(rank.at("rss_bytes"), 0);
  // The plan is what was used.
  EXPECT_EQ(events.front().at("device").at("bytes"), rank.at("peak_bytes").at("device"));
}

TEST(Trainer, ShuffledRunsFromScratchRepeatToTheBitForAnyThreadCount) {
  const Golden golden = load_golden("golden/gpt2-tiny");
  TrainOptions options = golden_options(golden);
  options.from_scratch = true;
  options.order = Order::shuffled;
  options.dropout = 0.1f;
  options.seed = 5;
  options.steps = 5;
  options.grad_accum = 2;
  options.micro_batch = 2;
  options.threads = 1;
  const auto one = run_logged(options);
  for (const int threads : {1, 2, 3}) {
    options.threads = threads;
    const auto again = run_logged(options);
    EXPECT_EQ(of_steps(again, "loss"), of_steps(one, "loss")) << threads;
    EXPECT_EQ(of_steps(again, "grad_norm"), of_steps(one, "grad_norm")) << threads;
    EXPECT_EQ(again.back().at("weights_hash"), one.back().at("weights_hash")) << threads;
  }
  options.activation_checkpointing = true;
  EXPECT_EQ(run_logged(options).back().at("weights_hash"), one.back().at("weights_hash"));
  options.seed = 6;
  EXPECT_NE(of_steps(run_logged(options), "loss"), of_steps(one, "loss"));
}

TEST(Trainer, TheScheduleReachesTheSteps) {
  TrainOptions options = golden_options(load_golden("golden/qwen2-tiny"));
  options.schedule = {.type = ScheduleType::cosine, .warmup = 4, .lr = 1e-3, .lr_end = 1e-4};
  const auto events = run_logged(options);
  EXPECT_EQ(of_steps(events, "lr")[0], 1e-3 / 4);
  EXPECT_EQ(of_steps(events, "lr")[3], 1e-3);
  EXPECT_DOUBLE_EQ(of_steps(events, "lr")[7].get<double>(), 1e-4 + 9e-4 / 2);
  EXPECT_DOUBLE_EQ(of_steps(events, "lr")[11].get<double>(), 1e-4);
}

TEST(Trainer, WithoutStepsItGoesOnceThroughTheData) {
  TrainOptions options = golden_options(load_golden("golden/qwen2-tiny"));
  options.steps = 0;
  EXPECT_EQ(of_steps(run_logged(options), "loss").size(), 12u);
}

TEST(Trainer, TheOutputLoadsAgainWithTheSameWeights) {
  const TestDirectory directory;
  const Golden golden = load_golden("golden/qwen2-tiny");
  TrainOptions options = golden_options(golden);
  options.steps = 2;
  options.output = directory.path() / "trained";
  const auto first = run_logged(options);
  TrainOptions idle = golden_options(golden);
  idle.model = options.output;
  idle.steps = 1;
  idle.schedule.lr = 0;
  EXPECT_EQ(run_logged(idle).back().at("weights_hash"), first.back().at("weights_hash"));
}

TEST(Trainer, ARunThatEndsWithoutAFiniteLossIsAnErrorAndWritesNothing) {
  const TestDirectory directory;
  TrainOptions options = golden_options(load_golden("golden/gpt2-tiny"));
  options.dtype = DType::f16;
  options.schedule.lr = 1e8;
  options.steps = 4;  // before the loss scale has been lowered all the way
  options.output = directory.path() / "out";
  EXPECT_TRUE(names(error_text([&] { run_logged(options); }), "the last step, 4", "--lr", "--dtype bf16", "--output"));
  EXPECT_FALSE(std::filesystem::exists(options.output));
}

TEST(Trainer, ARunFitsInTheMemoryItPlansFor) {
  TrainOptions options = golden_options(load_golden("golden/gpt2-tiny"));
  options.steps = 2;
  const std::int64_t planned = run_logged(options).front().at("device").at("arena_bytes");
  options.device_bytes = planned;
  (void)run_logged(options);
  options.device_bytes = planned - 256;
  EXPECT_TRUE(names(error_text([&] { (void)run_logged(options); }), "train", "memory", "budget", "--micro-batch"));
  // Where a step needs less than a piece of the weights on their way in and out, those count.
  options.seq_len = 1;
  options.micro_batch = 1;
  options.device_bytes = 1 << 28;
  options.device_bytes = run_logged(options).front().at("device").at("arena_bytes");
  (void)run_logged(options);
}

TEST(Trainer, WhatIsWrongIsSaidBeforeAnyWork) {
  const TrainOptions good = golden_options(load_golden("golden/gpt2-tiny"));
  const auto with = [&](auto change) {
    TrainOptions options = good;
    change(options);
    return error_text([&] { Trainer trainer(options); });
  };
  EXPECT_TRUE(names(with([](auto& o) { o.micro_batch = 0; }), "--micro-batch 0"));
  EXPECT_TRUE(names(with([](auto& o) { o.grad_accum = 0; }), "--grad-accum 0"));
  EXPECT_TRUE(names(with([](auto& o) { o.steps = -1; }), "--steps -1"));
  EXPECT_TRUE(names(with([](auto& o) { o.seq_len = 129; }), "--seq-len 129", "128"));
  EXPECT_TRUE(names(with([](auto& o) { o.schedule.lr = std::nan(""); }), "--lr nan"));
  EXPECT_TRUE(names(with([](auto& o) { o.optimizer.beta2 = 1; }), "--betas 1"));
  EXPECT_TRUE(names(with([](auto& o) { o.dropout = 1.0f; }), "--dropout 1"));
  EXPECT_TRUE(names(with([](auto& o) { o.products = Products::fp8; }), "--matmul-dtype fp8", "--device cuda"));
  EXPECT_TRUE(names(with([](auto& o) { o.data = "nowhere.bin"; }), "nowhere.bin"));
  EXPECT_TRUE(names(with([](auto& o) { o.model = "nowhere"; }), "nowhere"));
}

}  // namespace
}  // namespace zeepo
