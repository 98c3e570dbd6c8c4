// Signals that end the program: it ends as they say, after the step that is under way, and leaves no partial file.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/running_program.h"
#include "tests/support/scratch_model.h"
#include "tests/support/test_data.h"
#include "zeepo/base/stop_request.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class Stop : public testing::Test {
 protected:
  std::string at(const char* name) const { return directory_.path() / name; }
  // `train` on a golden model, without an end, with everything that writes files.
  Arguments endless(const Arguments& given = {}) const {
    const fs::path model = golden("gpt2-tiny");
    Arguments arguments{
        "train",        "--model", model,      "--data",  model / "tokens.bin", "--seq-len", "16",
        "--steps",      "1000000", "--device", "cpu",     "--threads",          "1",         "--memory",
        "device=64MiB", "--log",   at("log"),  "--trace", at("trace.json"),     "--output",  at("a/b/trained")};
    arguments.insert(arguments.end(), given.begin(), given.end());
    return arguments;
  }
  std::vector<Json> events() const {
    std::vector<Json> events;
    std::istringstream lines(whole_file(at("log")));
    for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
    return events;
  }
  bool has_stepped() const { return whole_file(at("log")).find("\"event\":\"step\"") != std::string::npos; }
  void expect_nothing_but(const std::vector<std::string>& expected) const {
    std::vector<std::string> left;
    for (const auto& file : fs::directory_iterator(directory_.path())) left.push_back(file.path().filename());
    std::ranges::sort(left);
    EXPECT_EQ(left, expected);
  }

  const TestDirectory directory_;
};

TEST_F(Stop, ASignalBetweenStepsEndsTheRunAfterTheStep) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    RunningProgram program(kProgram, endless());
    ASSERT_TRUE(becomes_true([&] { return has_stepped(); }));
    EXPECT_TRUE(partial_files_in(directory_.path()).empty()) << "not even SIGKILL leaves one between steps";
    program.send(signal);
    const Finished finished = program.wait();
    EXPECT_EQ(finished.code, -signal) << finished.err;
    EXPECT_TRUE(names(finished.err, "stopped by " + name_of_signal(signal) + " after step"));
    const auto told = events();
    ASSERT_GE(told.size(), 3u);
    EXPECT_EQ(told.back().at("event"), "stop");
    EXPECT_EQ(told.back().at("signal"), name_of_signal(signal));
    EXPECT_EQ(told[told.size() - 2].at("event"), "step");
    EXPECT_EQ(told[told.size() - 2].at("step"), told.back().at("step"));
    expect_nothing_but({"log"});
    fs::remove(at("log"));
  }
}

TEST_F(Stop, ASecondSignalDoesNotWaitForTheStep) {
  // A step copies a few hundred KiB over this link.
  RunningProgram program(kProgram, endless({"--offload-optimizer", "host", "--offload-param", "host", "--no-tune",
                                            "--simulate-link", "host-device=20KiB/s"}));
  ASSERT_TRUE(becomes_true([&] { return whole_file(at("log")).find("\"plan\"") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // weights are not loaded over the link
  program.send(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  program.send(SIGTERM);
  EXPECT_EQ(program.wait().code, -SIGTERM);
  for (const Json& event : events()) EXPECT_NE(event.at("event"), "stop");
  expect_nothing_but({"log"});
}

TEST_F(Stop, ASignalWhileTheModelIsSavedLeavesNothing) {
  const ScratchModel model(128, 1, 60'000, 200);  // 31 MB in pieces, each on the disk before the next
  for (const int signal : {SIGTERM, SIGHUP}) {
    RunningProgram program(kProgram, {"train", "--model", model.path(), "--data", model.path() / "tokens.bin",
                                      "--from-scratch", "--seq-len", "4", "--steps", "1", "--device", "cpu",
                                      "--threads", "1", "--output", at("a/b/trained")});
    // The place is tried at the start too; a file is in it only at the end.
    ASSERT_TRUE(becomes_true([&] {
      const auto partial = partial_files_in(directory_.path());
      return partial.size() > 1;
    })) << program.said();
    program.send(signal);
    const Finished finished = program.wait();
    EXPECT_EQ(finished.code, -signal) << finished.err;
    expect_nothing_but({});
  }
}

TEST_F(Stop, TokenizeLeavesNothing) {
  std::string text;
  for (int i = 0; i < 2'000'000; ++i) text += "word" + std::to_string(i) + " ";
  const TestDirectory input;
  RunningProgram program(kProgram, {"tokenize", "--model", golden("tokenizers/gpt2-bpe"), "--input",
                                    input.write("in.txt", text), "--output", at("tokens.bin")});
  ASSERT_TRUE(becomes_true([&] { return !partial_files_in(directory_.path()).empty(); }));
  program.send(SIGINT);
  EXPECT_EQ(program.wait().code, -SIGINT);
  expect_nothing_but({});
}

}  // namespace
}  // namespace zeepo
