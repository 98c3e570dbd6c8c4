// What a run leaves for other tools, and what becomes of the run when it cannot.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/gated_log.h"
#include "tests/support/http_client.h"
#include "tests/support/places.h"
#include "tests/support/test_data.h"
#include "zeepo/http/http_server.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

class MetricsOfARun : public testing::Test {
 protected:
  std::string at(const char* name) const { return directory_.path() / name; }
  Arguments train(const Arguments& given) const {
    const fs::path model = golden("gpt2-tiny");
    Arguments arguments{"train",    "--model", model,       "--data", model / "tokens.bin", "--seq-len",   "16",
                        "--device", "cpu",     "--threads", "1",      "--memory",           "device=64MiB"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    return arguments;
  }
  Finished run(const Arguments& given) const { return run_program(kProgram, train(given)); }
  std::vector<Json> events(const char* log, const std::string& kind) const {
    std::vector<Json> found;
    std::istringstream lines(whole_file(at(log)));
    for (std::string line; std::getline(lines, line);)
      if (Json event = Json::parse(line); event.at("event") == kind) found.push_back(std::move(event));
    return found;
  }

  const TestDirectory directory_;
};

std::ptrdiff_t lines_of(const std::string& path) { return std::ranges::count(whole_file(path), '\n'); }

TEST_F(MetricsOfARun, ContinueWhenItIsResumed) {
  const Arguments sinks{"--log",    at("log"),       "--csv",  at("csv"),          "--prometheus",
                        at("prom"), "--tensorboard", at("tb"), "--checkpoint-dir", at("saved")};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), sinks.begin(), sinks.end());
    return run(more);
  };
  EXPECT_EQ(with({"--steps", "3"}).code, 0);
  std::ofstream(at("log"), std::ios::app) << "{\"event\":\"st";  // as a kill leaves it
  std::ofstream(at("csv"), std::ios::app) << "4,5.";
  EXPECT_EQ(with({"--steps", "5", "--resume"}).code, 0);
  EXPECT_EQ(events("log", "step").size(), 5u);
  EXPECT_EQ(events("log", "resume").size(), 1u);
  EXPECT_EQ(lines_of(at("csv")), 6);
  EXPECT_TRUE(names(whole_file(at("prom")), "\nzeepo_step 5\n", "\nzeepo_steps_total 2\n", "\nzeepo_finished 1\n"));
  EXPECT_EQ(std::distance(fs::directory_iterator(at("tb")), {}), 2);
  EXPECT_EQ(with({"--steps", "2"}).code, 0);  // anew
  EXPECT_EQ(events("log", "step").size(), 2u);
  EXPECT_EQ(lines_of(at("csv")), 3);
}

TEST_F(MetricsOfARun, EveryStepTellsItsMemory) {
  ASSERT_EQ(run({"--steps", "3", "--log", at("log"), "--offload-optimizer", "host"}).code, 0);
  const Json peaks = events("log", "summary").at(0).at("ranks").at(0).at("peak_bytes");
  for (const Json& step : events("log", "step"))
    for (const char* tier : {"device", "host", "nvme"}) {
      const Json& memory = step.at("memory").at(tier);
      EXPECT_EQ(memory.size(), 6u);
      for (const auto& [kind, bytes] : memory.items()) EXPECT_LE(bytes, peaks.at(tier).at(kind)) << tier << " " << kind;
      EXPECT_EQ(memory.at("total") > 0, tier != std::string("nvme"));
    }
  EXPECT_GT(events("log", "step").at(1).at("memory").at("host").at("optimizer"), 0);
}

TEST_F(MetricsOfARun, AFullDiskDoesNotEndIt) {
  const Finished finished = run({"--steps", "3", "--csv", "/dev/full", "--log", at("log"), "--output", at("trained")});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(names(finished.err, "warning: --csv /dev/full: cannot write: No space", "step 3/3", "saved to"));
  EXPECT_TRUE(fs::exists(fs::path(at("trained")) / "model.safetensors"));
  EXPECT_EQ(events("log", "step").size(), 3u);
  ASSERT_EQ(events("log", "fault").size(), 1u);
  EXPECT_EQ(events("log", "fault")[0].at("step"), 1);
}

TEST_F(MetricsOfARun, PlacesThatCannotBeAreFoundBeforeTheFirstStep) {
  const std::string nowhere = directory_.write("file", "") / "below";
  for (const std::string option : {"--csv", "--prometheus", "--tensorboard"}) {
    const Finished finished = run({"--steps", "1", option, nowhere});
    EXPECT_EQ(finished.code, 1) << option;
    EXPECT_TRUE(names(finished.err, option, nowhere));
    EXPECT_EQ(finished.err.find("step 1/1"), std::string::npos);
  }
  const Finished same = run({"--steps", "1", "--log", at("x"), "--csv", at("./x")});
  EXPECT_EQ(same.code, 2);
  EXPECT_TRUE(names(same.err, "--csv", "--log"));
}

TEST_F(MetricsOfARun, ADashboardIsThereWhileItRuns) {
  if (!has_http_server()) GTEST_SKIP() << "this build has no HTTP server";
  GatedLog log(at("log"));
  RunningProgram program(kProgram,
                         train({"--steps", std::to_string(GatedLog::kSteps), "--log", at("log"), "--dashboard", "0"}));
  ASSERT_TRUE(becomes_true([&] { return log.has_steps(); })) << program.said();
  const std::string said = program.said(), words = "dashboard at http://127.0.0.1:";
  ASSERT_TRUE(names(said, words));
  const int port = std::stoi(said.substr(said.find(words) + words.size()));
  EXPECT_TRUE(names(http_get(port, "/").body, "gpt2-tiny", "const zeepoRun = null"));
  EXPECT_GT(Json::parse(http_get(port, "/data").body).at("last").size(), 0u);

  const Finished second = run({"--steps", "1", "--dashboard", std::to_string(port)});
  EXPECT_EQ(second.code, 1);
  EXPECT_TRUE(names(second.err, fmt::format("--dashboard 127.0.0.1:{}", port), "in use"));
  EXPECT_EQ(second.err.find("step 1/1"), std::string::npos);

  HttpClient idle(port);  // which the end of the run does not wait for
  ASSERT_TRUE(becomes_true([&] { return log.read(); }));
  EXPECT_EQ(program.wait().code, 0);
}

TEST_F(MetricsOfARun, AReportTellsOfIt) {
  ASSERT_EQ(run({"--steps", "3", "--log", at("log")}).code, 0);
  const Finished told = run_program(kProgram, {"report", at("log"), "--html", at("page.html")});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(names(told.out, "3, from 1 to 3 of 3", "loss", "tokens/s", "memory", "finished"));
  EXPECT_TRUE(names(whole_file(at("page.html")), "<!DOCTYPE html>", "\"last\":[1,2,3]"));

  EXPECT_EQ(run_program(kProgram, {"report"}).code, 2);
  const std::vector<std::pair<std::string, std::string>> wrong{
      {at("none"), "none"}, {directory_.write("empty", ""), "empty"}, {directory_.write("text", "hello\n"), "--log"}};
  for (const auto& [path, why] : wrong) {
    const Finished refused = run_program(kProgram, {"report", path, "--html", at("other.html")});
    EXPECT_EQ(refused.code, 1) << path;
    EXPECT_TRUE(names(refused.err, path, why));
    EXPECT_EQ(refused.out, "");
  }
  EXPECT_FALSE(fs::exists(at("other.html")));
}

}  // namespace
}  // namespace zeepo
