// `mpirun -n 3 zeepo train`, and a signal: all ranks end together, and no partial file is left.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/mpirun.h"
#include "tests/support/places.h"
#include "tests/support/running_program.h"
#include "zeepo/base/stop_request.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const auto kModel = fs::path(kTestData) / "golden" / "llama-tiny";

class MpiStop : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return directory_.path() / name; }
  // Three ranks, each of which has told its process id first.
  std::vector<std::string> endless() const {
    const std::string train = std::string(kProgram) + " train --model " + kModel.string() + " --data " +
                              (kModel / "tokens.bin").string() +
                              " --seq-len 16 --steps 1000000 --device cpu --threads 1 --memory device=64MiB --stage 2";
    return {"-n", "3", "sh", "-c",
            "echo $$ > " + at("rank") + "$OMPI_COMM_WORLD_RANK; exec " + train + " --log " + at("log") + " --trace " +
                at("trace.json") + " --output " + at("trained")};
  }
  bool has_stepped() const { return whole_file(at("log")).find("\"event\":\"step\"") != std::string::npos; }
  pid_t process_of(int rank) const { return std::stoi(whole_file(at("rank" + std::to_string(rank)))); }
  std::vector<Json> events() const {
    std::vector<Json> events;
    std::istringstream lines(whole_file(at("log")));
    for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
    return events;
  }
  void expect_nothing_left() const {
    EXPECT_TRUE(partial_files_in(directory_.path()).empty());
    EXPECT_FALSE(fs::exists(at("trained")));
    EXPECT_FALSE(fs::exists(at("trace.json")));
  }

  const TestDirectory directory_;
};

TEST_F(MpiStop, ASignalToAnyRankStopsAllAfterTheStep) {
  for (const auto& [rank, signal] : {std::pair{0, SIGTERM}, {2, SIGINT}}) {
    RunningProgram job(kMpirun, endless());
    ASSERT_TRUE(becomes_true([&] { return has_stepped(); })) << job.said();
    ::kill(process_of(rank), signal);
    const Finished finished = job.wait();
    EXPECT_EQ(finished.code, 128 + signal) << finished.err;
    const std::string name = name_of_signal(signal);
    EXPECT_TRUE(names(finished.err, "rank " + std::to_string(rank) + ": told to end by " + name,
                      "stopped by " + name + " after step"));
    const auto told = events();
    ASSERT_GE(told.size(), 3u);
    EXPECT_EQ(told.back().at("event"), "stop");
    EXPECT_EQ(told.back().at("signal"), name);
    EXPECT_EQ(told[told.size() - 2].at("step"), told.back().at("step"));
    expect_nothing_left();
    fs::remove(at("log"));
  }
}

// mpirun sends its ranks SIGTERM, and SIGKILL a second later.
TEST_F(MpiStop, ASignalToTheLauncherLeavesNothing) {
  RunningProgram job(kMpirun, endless());
  ASSERT_TRUE(becomes_true([&] { return has_stepped(); })) << job.said();
  job.send(SIGTERM);
  EXPECT_NE(job.wait().code, 0);
  expect_nothing_left();
}

}  // namespace
}  // namespace zeepo
