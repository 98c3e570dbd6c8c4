// `mpirun -n N zeepo train`: the same bits as ranks in one process, and the losses that PyTorch has.
#include <gtest/gtest.h>
#include <cstdlib>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/mpirun.h"
#include "tests/support/places.h"
#include "tests/support/run_record.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

const auto kModel = std::filesystem::path(kTestData) / "golden" / "llama-tiny";

struct Job {
  int ranks, stage;
  const char* dtype = "fp32";
  std::int64_t micro_batch() const { return ranks == 3 ? 1 : 4 / ranks; }  // the golden batch has 4 rows
  std::string text() const { return fmt::format("{} ranks, stage {}, {}", ranks, stage, dtype); }
};

class MpiTraining : public ::testing::Test {
 protected:
  std::filesystem::path log() const { return directory_.path() / "log.jsonl"; }

  RunRecord as_processes(const Job& job) const {
    const auto finished = run_program(kMpirun, {"-n",
                                                std::to_string(job.ranks),
                                                kProgram,
                                                "train",
                                                "--model",
                                                kModel,
                                                "--data",
                                                kModel / "tokens.bin",
                                                "--seq-len",
                                                "48",
                                                "--micro-batch",
                                                std::to_string(job.micro_batch()),
                                                "--steps",
                                                "12",
                                                "--no-shuffle",
                                                "--threads",
                                                "1",
                                                "--lr",
                                                "2e-3",
                                                "--eps",
                                                "1e-6",
                                                "--dtype",
                                                job.dtype,
                                                "--stage",
                                                std::to_string(job.stage),
                                                "--memory",
                                                "device=64MiB",
                                                "--log",
                                                log()});
    EXPECT_EQ(finished.code, 0) << job.text() << "\n" << finished.err;
    return read_record(log());
  }

  RunRecord as_threads(const Job& job) const {
    TrainOptions options;
    options.model = kModel;
    options.data = kModel / "tokens.bin";
    options.seq_len = 48;
    options.micro_batch = job.micro_batch();
    options.steps = 12;
    options.order = Order::as_is;
    options.threads = 1;
    options.schedule.lr = 2e-3;
    options.optimizer.eps = 1e-6f;
    options.dtype = parse_dtype(job.dtype);
    options.stage = job.stage;
    options.device_bytes = 64 << 20;
    options.log = log();
    testing::internal::CaptureStderr();
    ThreadsWorld world(job.ranks);
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    testing::internal::GetCapturedStderr();
    return read_record(log());
  }

  void expect_same(const Job& job) const {
    const RunRecord processes = as_processes(job), threads = as_threads(job);
    EXPECT_EQ(processes.ranks.size(), static_cast<std::size_t>(job.ranks)) << job.text();
    EXPECT_EQ(processes.losses, threads.losses) << job.text();
    EXPECT_EQ(processes.norms, threads.norms) << job.text();
    EXPECT_EQ(processes.hash, threads.hash) << job.text();
    if (job.ranks == 3 || std::string_view(job.dtype) != "fp32") return;
    const auto golden = Json::parse(read_text(kModel / "golden.json")).at("losses").get<std::vector<double>>();
    ASSERT_EQ(processes.losses.size(), golden.size()) << job.text();
    for (std::size_t i = 0; i < golden.size(); ++i)
      EXPECT_NEAR(processes.losses[i], golden[i], 1e-5 * golden[i]) << job.text() << ", step " << i + 1;
  }

 private:
  const TestDirectory directory_;
};

TEST_F(MpiTraining, OnTwoRanks) {
  for (const int stage : {0, 3}) expect_same({2, stage});
}
TEST_F(MpiTraining, OnThreeRanks) {
  for (const int stage : {0, 3}) expect_same({3, stage});
}
TEST_F(MpiTraining, OnFourRanks) {
  for (const int stage : {0, 3}) expect_same({4, stage});
}
TEST_F(MpiTraining, InBf16AtTheStagesBetween) {
  expect_same({3, 1, "bf16"});
  expect_same({2, 2, "bf16"});
}

// One message, not one a rank.
TEST(MpiUsage, ErrorsExitWithTwo) {
  const std::vector<std::string> good{kProgram,  "train", "--model",  kModel, "--data",    kModel / "tokens.bin",
                                      "--steps", "1",     "--device", "cpu",  "--threads", "1"};
  const auto with = [&](std::vector<std::string> given) {
    given.insert(given.begin(), good.begin(), good.end());
    return given;
  };
  const auto job = [](int ranks, const std::vector<std::string>& command) {
    std::vector<std::string> arguments{"-n", std::to_string(ranks)};
    arguments.insert(arguments.end(), command.begin(), command.end());
    return arguments;
  };
  const auto expect = [](const std::vector<std::string>& arguments, const std::string& message) {
    const auto finished = run_program(kMpirun, arguments);
    EXPECT_EQ(finished.code, 2) << finished.err;
    const std::size_t first = finished.err.find(message);
    EXPECT_NE(first, std::string::npos) << finished.err;
    EXPECT_EQ(finished.err.find(message, first + 1), std::string::npos) << finished.err;
  };
  expect(job(3, with({"--micro-batch", "0"})), "zeepo: train: --micro-batch 0: must be at least 1");
  expect(job(3, with({"--frobnicate"})), "--frobnicate");
  expect(job(3, with({"--seq-len", "100000"})), "zeepo: train: --seq-len 100000: the model has");  // known to Trainer
  expect(job(2, {kProgram, "generate", "--model", kModel, "--ids", "1,2", "--offload-param", "disk"}),
         "generate: --offload-param disk");
  // On one rank alone: the others, which have started to train, end too.
  auto differing = job(1, good);
  differing.emplace_back(":");
  const auto bad = job(1, with({"--lr", "fast"}));
  differing.insert(differing.end(), bad.begin(), bad.end());
  expect(differing, "zeepo: rank 1: train: --lr fast");
}

}  // namespace
}  // namespace zeepo
