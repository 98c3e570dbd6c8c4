#include "zeepo/metrics/run_log.h"

#include <sstream>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/metrics/run_page.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

std::string line(std::int64_t step, double loss) { return line_of(step_event(step, loss)); }

RunLog log_of(const std::string& text) {
  const TestDirectory directory;
  return read_run_log(directory.write("run.jsonl", text));
}

Json history(const RunLog& log) { return Json::parse(log.history.json()); }

TEST(RunLog, TellsTheRun) {
  std::string text = line_of(
      {{"event", "plan"}, {"params", 1234567}, {"dtype", "fp32"}, {"steps", 3}, {"world_size", 2}, {"stage", 3}});
  text += line(1, 3) + line(2, 1.5) + line_of(eval_event(2, 2)) +
          line_of({{"event", "checkpoint"}, {"step", 2}, {"path", "runs/step-2"}}) + line(3, 2) +
          line_of(eval_event(3, 2.5)) +
          line_of({{"event", "fault"}, {"step", 3}, {"what", "checkpoint"}, {"message", "the disk\x1b[31m is full"}}) +
          line_of({{"event", "summary"}, {"loss", 2}, {"weights_hash", "abc"}, {"ranks", Event::array()}});
  const RunLog log = log_of(text);
  const std::string told = log.digest.text();
  EXPECT_TRUE(names(told, "1,234,567 parameters in fp32; 2 ranks, stage 3"));
  EXPECT_TRUE(names(told, "3, from 1 to 3 of 3"));
  EXPECT_TRUE(names(told, "first 3.0000, last 2.0000, best 1.5000 at step 2"));
  EXPECT_TRUE(names(told, "first 2.0000, last 2.5000, best 2.0000 at step 2; 2 evaluations"));
  EXPECT_TRUE(names(told, "192 tokens in 1.5 s; median 128 tokens/s"));
  EXPECT_TRUE(names(told, "37.5% of the time: host 375 ms, step 188 ms"));
  EXPECT_TRUE(names(told, "device 1007 B at most: activations 7 B, params 1000 B"));
  EXPECT_TRUE(names(told, "1 checkpoint, the last at step 2: runs/step-2"));
  EXPECT_TRUE(names(told, "1 fault, the last at step 3: the disk [31m is full"));
  EXPECT_TRUE(names(told, "finished; weights abc"));
  EXPECT_EQ(log.damaged_lines, 0);
  EXPECT_FALSE(log.ends_in_a_line);

  const Json run = history(log);
  EXPECT_EQ(run.at("last"), Json({1, 2, 3}));
  EXPECT_EQ(run.at("series").at("loss").at("mean"), Json({3, 1.5, 2}));
  EXPECT_EQ(run.at("series").at("memory/host/total").at("mean"), Json({507, 507, 507}));
  EXPECT_EQ(run.at("evals"), Json::parse("[[2,2],[3,2.5]]"));
  EXPECT_EQ(run.at("marks").size(), 2u);
  EXPECT_EQ(run.at("counts"), Json::parse(R"({"checkpoint":1,"fault":1})"));
  EXPECT_EQ(run.at("ended"), "finished");
}

TEST(RunLog, StepsThatWereDoneAgainCountOnce) {
  // Killed in step 5, resumed behind 2, killed in 4, resumed behind 3.
  const std::string resumed = line_of({{"event", "resume"}, {"step", 2}, {"path", "runs/step-2"}});
  const RunLog log = log_of(line(1, 9) + line(2, 8) + line(3, 0.5) + line(4, 0.25) + line_of(eval_event(4, 0.1)) +
                            resumed + line(3, 7) + line(4, 0.125) + resumed + line(4, 6) + line(5, 5));
  const Json run = history(log);
  EXPECT_EQ(run.at("last"), Json({1, 2, 3, 4, 5}));
  EXPECT_EQ(run.at("series").at("loss").at("mean"), Json({9, 8, 7, 6, 5}));
  EXPECT_EQ(run.at("evals"), Json::array());
  EXPECT_EQ(log.repeated_steps, 3);
  EXPECT_TRUE(names(log.digest.text(), "5, from 1 to 5", "first 9.0000, last 5.0000, best 5.0000 at step 5"));
  EXPECT_TRUE(names(log.digest.text(), "2 resumes", "no summary"));
}

TEST(RunLog, HalfALineAndLossesThatAreNoNumbers) {
  Event lost = step_event(2);
  lost["loss"] = nullptr;
  const RunLog log = log_of(line(1, 4) + line_of(lost) + line(3, 2) + line(4, 1).substr(0, 70));
  EXPECT_TRUE(log.ends_in_a_line);
  EXPECT_EQ(log.damaged_lines, 0);
  EXPECT_EQ(log.digest.steps(), 3);
  EXPECT_TRUE(names(log.digest.text(), "last 2.0000, best 2.0000 at step 3; 1 not a number", "no summary"));
  EXPECT_EQ(history(log).at("series").at("loss").at("mean"), Json::parse("[4,null,2]"));
}

TEST(RunLog, WhatIsNoEventIsLeftOut) {
  const std::string noise =
      "\n[1,2]\n3\n\"event\"\n{\"event\":7}\n{\"event\":\"step\",\"step\":\"x\"}\n{\"event\":\"step\",\"step\":-4}\n"
      "{\"event\":\"step\",\"step\":1e99}\n{\"event\":\"eval\",\"step\":{},\"loss\":[]}\n\xff\xfe\n" +
      std::string(5000, '[') +
      "\n{\"event\": \"step\", \"step\": 2, \"loss\": 1e999}\n{\"event\":\"step\",\"step\":2,\n";
  const RunLog log = log_of(line(1, 4) + noise + line(3, 2));
  EXPECT_TRUE(names(log.digest.text(), "last 2.0000"));
  EXPECT_EQ(history(log).at("last"), Json({1, 3}));
  EXPECT_GE(log.damaged_lines, 8);
  EXPECT_TRUE(names(error_text([] { log_of("hello\nworld"); }), "run.jsonl", "--log"));
  EXPECT_TRUE(names(error_text([] { log_of(""); }), "run.jsonl", "empty"));
  EXPECT_TRUE(
      names(error_text([] { read_run_log(std::filesystem::path("/nowhere/run.jsonl")); }), "/nowhere/run.jsonl"));
}

TEST(RunLog, WhatIsNestedWithoutEndIsNoEvent) {
  const std::string open(1'000'000, '['), close(1'000'000, ']');
  const RunLog log = log_of("{\"event\":\"plan\",\"x\":" + open + close + "}\n" + line(1, 3));
  EXPECT_EQ(log.damaged_lines, 1);
  EXPECT_EQ(log.digest.steps(), 1);
  // In a text they are characters.
  const RunLog texts = log_of(line_of({{"event", "fault"}, {"step", 1}, {"message", "\"[" + open}}) + line(1, 3));
  EXPECT_EQ(texts.damaged_lines, 0);
}

TEST(RunLog, LinesMayCrossThePiecesInWhichTheFileIsRead) {
  std::string text;
  for (int step = 1; text.size() < (3u << 20); ++step) text += line(step, step);
  const auto lines = std::ranges::count(text, '\n');
  const RunLog log = log_of(text);
  EXPECT_EQ(log.lines, lines);
  EXPECT_EQ(log.damaged_lines, 0);
  EXPECT_EQ(log.digest.steps(), lines);
}

TEST(RunHistory, ALongRunKeepsItsShape) {
  RunHistory run;
  constexpr std::int64_t kSteps = 20'000;
  for (std::int64_t step = 1; step <= kSteps; ++step) run.take(step_event(step, static_cast<double>(step % 1000)));
  const Json json = Json::parse(run.json());
  const auto& mean = json.at("series").at("loss").at("mean");
  EXPECT_LE(mean.size(), RunHistory::kMostPoints);
  EXPECT_GT(mean.size(), RunHistory::kMostPoints / 4);
  EXPECT_EQ(json.at("first").front(), 1);
  EXPECT_EQ(json.at("last").back(), kSteps);
  double sum = 0, least = 1e9, most = 0;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const auto steps = json.at("last")[i].get<double>() - json.at("first")[i].get<double>() + 1;
    sum += steps * mean[i].get<double>();
    least = std::min(least, json.at("series").at("loss").at("min")[i].get<double>());
    most = std::max(most, json.at("series").at("loss").at("max")[i].get<double>());
    if (i > 0) {
      EXPECT_EQ(json.at("first")[i].get<std::int64_t>(), json.at("last")[i - 1].get<std::int64_t>() + 1);
    }
  }
  EXPECT_NEAR(sum / kSteps, 499.5, 1e-3);
  EXPECT_EQ(least, 0);
  EXPECT_EQ(most, 999);
}

TEST(RunHistory, AReaderMayAskForWhatIsNew) {
  RunHistory run;
  for (int step = 1; step <= 10; ++step) run.take(step_event(step));
  const Json more = Json::parse(run.json(8, run.stride()));
  EXPECT_EQ(more.at("from"), 7);
  EXPECT_EQ(more.at("last"), Json({8, 9, 10}));
  EXPECT_EQ(Json::parse(run.json(8, run.stride() * 2)).at("from"), 0);  // points have been merged since
  run.take(step_event(5));                                              // goes back
  EXPECT_EQ(Json::parse(run.json()).at("last"), Json({1, 2, 3, 4, 5}));
  EXPECT_EQ(Json::parse(run.json(8, run.stride())).at("from"), 5);
}

TEST(RunHistory, StaysSmallWhateverItIsGiven) {
  RunHistory run;
  for (std::int64_t i = 0; i < 5000; ++i) {
    Event event = step_event((std::int64_t{1} << (i % 62)) + i * 1'000'003);
    event["memory"][fmt::format("tier{}", i)] = {{"total", i}};
    run.take(event);
    run.take(eval_event(i, 1));
    run.take({{"event", "fault"}, {"step", i}, {"message", std::string(2000, 'x')}});
  }
  run.take(step_event(std::numeric_limits<std::int64_t>::max()));
  const Json json = Json::parse(run.json());
  EXPECT_LE(json.at("series").size(), RunHistory::kMostSeries);
  EXPECT_LE(json.at("first").size(), RunHistory::kMostPoints);
  EXPECT_LE(json.at("marks").size(), RunHistory::kMostMarks);
  EXPECT_EQ(json.at("counts").at("fault"), 5000);
}

TEST(RunPage, NoTextEndsItsScript) {
  RunHistory run;
  run.take(step_event(1));
  run.take({{"event", "fault"}, {"step", 1}, {"message", "</script><script>alert(1)</script>{SCRIPT}\xff"}});
  const std::string page = run_page("<b>&amp;", run);
  const auto count = [&](const std::string& text) {
    int found = 0;
    for (std::size_t at = page.find(text); at != std::string::npos; at = page.find(text, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("</script>"), 1);
  EXPECT_EQ(count("<b>"), 0);
  EXPECT_EQ(count("&lt;b>&amp;amp;"), 2);
  EXPECT_EQ(count("alert(1)"), 1);
  EXPECT_EQ(count("class Chart"), 1);
  for (const char* away : {"http://", "https://", "src=", "url(//"}) {
    const std::string allowed = "http://www.w3.org/2000/svg";  // a name, not an address
    EXPECT_EQ(count(away), std::string_view(away) == "http://" ? count(allowed) : 0) << away;
  }
}

}  // namespace
}  // namespace zeepo
