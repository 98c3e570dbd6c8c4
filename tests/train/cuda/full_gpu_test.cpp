// A GPU whose memory another holds: an error that says what was asked for, what is free and what to change.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/elsewhere.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "zeepo/device/devices.h"
#include "zeepo/memory/arena_tier.h"

namespace zeepo {
namespace {

class FullGpu : public ::testing::Test {
 protected:
  // Takes all but this much of the GPU and trains in another process.
  static Finished train_within(std::size_t left, const std::vector<std::string>& options) {
    const auto stream = make_cuda_stream(0);
    const ArenaTier held("device", cuda_memory(0).free_bytes - left, *stream);
    const auto model = std::filesystem::path(from_environment("ZEEPO_TEST_DATA", kTestData)) / "golden" / "llama-tiny";
    std::vector<std::string> arguments{"train",  "--device",           "cuda",      "--model", model,
                                       "--data", model / "tokens.bin", "--seq-len", "48",      "--steps",
                                       "1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_program(from_environment("ZEEPO_PROGRAM", kProgram), arguments);
  }
  static constexpr std::size_t kGiB = std::size_t{1} << 30;
};

TEST_F(FullGpu, AStepThatDoesNotFitInWhatIsFreeSaysHowMuchIs) {
  const auto finished = train_within(kGiB * 3 / 2, {"--micro-batch", "8192"});
  EXPECT_EQ(finished.code, 1);
  for (const char* words : {"a step needs", "more than the budget of", "of GPU 0's", "were free; nvidia-smi shows",
                            "lower --micro-batch", "--placement auto"})
    EXPECT_NE(finished.err.find(words), std::string::npos) << words << "\n" << finished.err;
}

TEST_F(FullGpu, ABudgetThatIsNotFreeIsRefused) {
  const auto finished = train_within(kGiB, {"--micro-batch", "8192", "--memory", "device=60GiB"});
  EXPECT_EQ(finished.code, 1);
  for (const char* words : {"cannot take", "on GPU 0", "are free; lower --memory device="})
    EXPECT_NE(finished.err.find(words), std::string::npos) << words << "\n" << finished.err;
}

TEST_F(FullGpu, AGpuThatHasNoRoomForAProgramIsNamed) {
  const auto finished = train_within(kGiB / 16, {});
  EXPECT_EQ(finished.code, 1);
  for (const char* words : {"GPU 0", "so little of its memory is free", "nvidia-smi shows", "CUDA_VISIBLE_DEVICES"})
    EXPECT_NE(finished.err.find(words), std::string::npos) << words << "\n" << finished.err;
}

}  // namespace
}  // namespace zeepo
