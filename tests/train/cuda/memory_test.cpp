// A GPU's memory: as much as the plan says, taken before the first step has ended, and nothing after it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/elsewhere.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/self/self_communicator.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

std::int64_t free_bytes() { return static_cast<std::int64_t>(cuda_memory(0).free_bytes); }

// What a log says so far; its last line may not be whole.
struct Logged {
  std::int64_t steps = 0, planned_bytes = 0;
  bool ended = false;
};
Logged read_log(const std::filesystem::path& path) {
  std::istringstream lines(whole_file(path));
  Logged logged;
  for (std::string line; std::getline(lines, line) && !lines.eof();) {
    const auto event = nlohmann::json::parse(line);
    if (event.at("event") == "plan") logged.planned_bytes = event.at("device").at("arena_bytes");
    if (event.at("event") == "step") ++logged.steps;
    if (event.at("event") == "summary") logged.ended = true;
  }
  return logged;
}

class GpuMemory : public ::testing::TestWithParam<Place> {
 protected:
  static constexpr std::int64_t kSteps = 30;

  TrainOptions options(std::int64_t steps, const char* log) const {
    const auto model = std::filesystem::path(from_environment("ZEEPO_TEST_DATA", kTestData)) / "golden" / "llama-tiny";
    TrainOptions options;
    options.model = model;
    options.data = model / "tokens.bin";
    options.seq_len = 48;
    options.micro_batch = 16384;  // the plan is then far larger than what it may be wrong by
    options.steps = steps;
    options.backend = Backend::cuda;
    options.dtype = DType::bf16;
    options.placement.optimizer = Shares::all_in(GetParam());
    options.log = directory_.path() / log;
    return options;
  }
  static void train(const TrainOptions& options) {
    SelfCommunicator alone;
    Trainer(options, alone).run();
  }

  const TestDirectory directory_;
};

TEST_P(GpuMemory, IsAsPlannedAndNothingIsTakenAfterTheFirstStep) {
  testing::internal::CaptureStderr();
  train(options(3, "loading.jsonl"));  // code of kernels, loaded at their first use, takes memory too and stays
  const std::int64_t before = free_bytes();

  const TrainOptions watched = options(kSteps, "log.jsonl");
  auto run = std::async(std::launch::async, [&] { train(watched); });
  std::vector<std::int64_t> free;
  std::int64_t steps = 0;  // before the last sample
  while (run.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    const std::int64_t ended = read_log(watched.log).steps;
    if (ended == 0) continue;
    const std::int64_t now = free_bytes();
    if (read_log(watched.log).ended) continue;  // the memory may have been given back
    free.push_back(now);
    steps = ended;
  }
  const std::string said = testing::internal::GetCapturedStderr();
  run.get();

  ASSERT_GE(free.size(), 5u) << said;
  EXPECT_GE(steps, kSteps / 2) << "of these the memory was watched";
  EXPECT_EQ(std::ranges::min(free), free.front()) << free.front() - std::ranges::min(free) << " bytes taken later";
  EXPECT_EQ(std::ranges::max(free), free.front()) << std::ranges::max(free) - free.front() << " bytes freed later";

  const std::int64_t planned = read_log(watched.log).planned_bytes;
  EXPECT_GE(planned, 1024 * kMiB) << "too little to compare with";
  const std::int64_t expected = planned + static_cast<std::int64_t>(CudaStream::kWorkspaceBytes);
  EXPECT_NEAR(static_cast<double>(before - free.front()), static_cast<double>(expected),
              std::max(0.02 * static_cast<double>(planned), 64.0 * kMiB));
}

INSTANTIATE_TEST_SUITE_P(Optimizer, GpuMemory, ::testing::Values(Place::device, Place::host),
                         [](const auto& place) { return std::string(name_of(place.param)); });

}  // namespace
}  // namespace zeepo
