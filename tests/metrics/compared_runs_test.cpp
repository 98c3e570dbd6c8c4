#include "zeepo/metrics/compared_runs.h"

#include <gtest/gtest.h>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

Event summary(const char* hash, std::int64_t peak, std::vector<std::int64_t> gathered) {
  Event event{{"event", "summary"}, {"weights_hash", hash}, {"ranks", Event::array()}};
  for (const std::int64_t bytes : gathered)
    event["ranks"].push_back(
        {{"peak_bytes", {{"device", {{"total", peak}}}}}, {"comm_bytes", {{"all_gather", bytes}}}});
  return event;
}

RunDigest run_of(std::initializer_list<Event> events) {
  RunDigest digest;
  for (const Event& event : events) digest.take(event);
  return digest;
}

TEST(ComparedRuns, StandSideBySide) {
  const RunDigest a = run_of({{{"event", "plan"}, {"params", 5000}, {"dtype", "fp32"}, {"world_size", 2}},
                              step_event(1, 3),
                              step_event(2, 2),
                              summary("abc", 1 << 20, {100, 50})});
  Event faster = step_event(2, 2.5);
  faster["tokens_per_second"] = 256.0;
  Event first = step_event(1, 3);
  first["tokens_per_second"] = 256.0;
  const RunDigest b = run_of({first, faster, step_event(3, 1), summary("abd", 1 << 19, {300})});
  const std::vector<ComparedRun> runs{{"a", &a}, {"b", &b}};
  const std::string text = comparison_text(runs);
  EXPECT_TRUE(names(text, "tokens/s, median", "2.00 x"));
  EXPECT_TRUE(names(text, "1.00 MiB", "512.00 KiB", "0.50 x"));
  EXPECT_TRUE(names(text, "150 B", "300 B"));  // the ranks together
  EXPECT_TRUE(names(text, "the first loss that differs is that of step 2"));
  EXPECT_TRUE(names(text, "weights_hash", "another"));
  EXPECT_EQ(text.find("host to device"), std::string::npos) << text;  // no run has any
  EXPECT_EQ(text.find(" \n"), std::string::npos) << text;

  const Event json = comparison_json(runs);
  EXPECT_EQ(json.at("losses"), Event({{"common_steps", 2}, {"first_difference", 2}}));
  EXPECT_EQ(json.at("runs").at(0).at("figures").at("comm_bytes/all_gather"), 150);
  EXPECT_EQ(json.at("runs").at(1).at("figures").at("peak_bytes/device"), 1 << 19);
  EXPECT_EQ(json.at("runs").at(1).at("figures").at("loss_last"), 1);
  EXPECT_FALSE(json.at("runs").at(1).at("figures").contains("params"));
}

TEST(ComparedRuns, LossesMayBeTheSame) {
  const RunDigest a = run_of({step_event(1, 0.1), step_event(2, 0.2)});
  const RunDigest b = run_of({step_event(2, 0.2)});
  const RunDigest c = run_of({step_event(7, 0.2)});
  EXPECT_TRUE(names(comparison_text({{"a", &a}, {"b", &b}}), "the same to the bit in all 1 steps in common"));
  EXPECT_TRUE(names(comparison_text({{"a", &a}, {"c", &c}}), "no step in common"));
}

// Logs may come from anywhere.
TEST(ComparedRuns, SurviveEventsThatNoRunWrites) {
  const RunDigest odd = run_of({{{"event", "plan"}, {"params", "many"}, {"placement", 5}},
                                {{"event", "step"}, {"step", 1}, {"loss", nullptr}, {"stall_seconds", 3}},
                                {{"event", "summary"}, {"ranks", {5, {{"peak_bytes", {{"device", "x"}}}}}}}});
  const RunDigest none;
  EXPECT_TRUE(names(comparison_text({{"odd", &odd}, {"none", &none}}), "steps"));
  EXPECT_EQ(comparison_json({{"odd", &odd}, {"none", &none}}).at("runs").size(), 2u);
}

}  // namespace
}  // namespace zeepo
