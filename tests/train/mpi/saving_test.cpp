// `mpirun -n 3 zeepo train --output`: what goes wrong at the end ends no rank, or all of them with exit code 1.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/gated_log.h"
#include "tests/support/mpirun.h"
#include "tests/support/places.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;

const auto kModel = fs::path(kTestData) / "golden" / "llama-tiny";

class MpiSaving : public testing::Test {
 protected:
  std::string at(const char* name) const { return directory_.path() / name; }
  Arguments job(const Arguments& given) const {
    Arguments arguments{"-n",        "3", kProgram,   "train", "--model",   kModel, "--data",   kModel / "tokens.bin",
                        "--seq-len", "8", "--device", "cpu",   "--threads", "1",    "--memory", "device=64MiB",
                        "--stage",   "3"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    return arguments;
  }
  const std::string steps_ = std::to_string(GatedLog::kSteps);
  const TestDirectory directory_;
};

TEST_F(MpiSaving, TriesAgainThenTakesTheSecondPlace) {
  GatedLog log(at("log"));
  // The pause is longer than the ranks wait for each other in a call.
  RunningProgram program(kMpirun,
                         job({"--steps", steps_, "--log", at("log"), "--output", at("trained"), "--output-fallback",
                              at("elsewhere"), "--output-retry", "3", "--timeout", "2", "--lr", "1e-6"}));
  ASSERT_TRUE(becomes_true([&] { return log.has_steps(); })) << program.said();
  std::ofstream(at("trained")) << "in the way";
  ASSERT_TRUE(becomes_true([&] { return log.has("\"saved\"") && log.read(); })) << program.said();
  const Finished finished = program.wait();
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(log.events("saved").at(0).at("path"), at("elsewhere"));
  EXPECT_GE(log.events("fault").size(), 3u);
  EXPECT_TRUE(fs::exists(at("elsewhere") + "/model.safetensors"));
  EXPECT_EQ(log.events("summary").size(), 1u);
}

TEST_F(MpiSaving, WithoutAnyPlaceTheJobFails) {
  GatedLog log(at("log"));
  RunningProgram program(kMpirun, job({"--steps", steps_, "--log", at("log"), "--output", at("trained"),
                                       "--output-retry", "0", "--lr", "1e-6"}));
  ASSERT_TRUE(becomes_true([&] { return log.has_steps(); })) << program.said();
  std::ofstream(at("trained")) << "in the way";
  ASSERT_TRUE(becomes_true([&] { return log.has("\"fault\"") && log.read(); })) << program.said();
  const Finished finished = program.wait();
  EXPECT_EQ(finished.code, 1) << finished.err;
  EXPECT_TRUE(names(finished.err, "rank 0: train: the trained model is not saved", at("trained"), "not a directory"));
  EXPECT_TRUE(partial_files_in(directory_.path()).empty());
}

TEST_F(MpiSaving, WeightsThatAreNotNumbersAreNotSaved) {
  const auto finished = run_program(kMpirun, job({"--steps", "1", "--lr", "1e38", "--output", at("trained")}));
  EXPECT_EQ(finished.code, 1) << finished.err;
  EXPECT_TRUE(names(finished.err, "after step 1", "weight", "--lr"));
  EXPECT_FALSE(fs::exists(at("trained")));
  EXPECT_EQ(run_program(kMpirun, job({"--steps", "1", "--lr", "1e38"})).code, 1);
  const auto saved = run_program(kMpirun, job({"--steps", "1", "--lr", "1e38", "--checkpoint-dir", at("saved")}));
  EXPECT_EQ(saved.code, 1) << saved.err;
  EXPECT_TRUE(names(saved.err, "checkpoint of step 1", "weight", "not a number"));
  EXPECT_TRUE(fs::is_empty(at("saved")));
}

TEST_F(MpiSaving, AFifoAsInputIsAnErrorAtOnce) {
  const std::string fifo = at("fifo.bin");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  auto arguments = job({"--steps", "1"});
  *(std::ranges::find(arguments, "--data") + 1) = fifo;
  const auto finished = run_program(kMpirun, arguments);
  EXPECT_EQ(finished.code, 1) << finished.err;
  EXPECT_TRUE(names(finished.err, fifo, "FIFO"));
}

}  // namespace
}  // namespace zeepo
