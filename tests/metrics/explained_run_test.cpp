#include "zeepo/metrics/explained_run.h"

#include <gtest/gtest.h>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

Event tier(std::int64_t params, std::int64_t arena, std::int64_t budget) {
  return {{"bytes", {{"params", params}, {"total", params}}}, {"arena_bytes", arena}, {"budget_bytes", budget}};
}

Event plan_event(std::int64_t device_arena, bool recomputes = false) {
  return {{"event", "plan"},
          {"stage", 3},
          {"device", tier(1000, device_arena, 2000)},
          {"host", tier(500, 600, 600)},
          {"placement", {{"params", {{"device", 0.0}, {"host", 1.0}}}, {"activation_checkpointing", recomputes}}}};
}

RunDigest explained(std::initializer_list<Event> events) {
  RunDigest digest;
  for (const Event& event : events) digest.take(event);
  return digest;
}

TEST(ExplainedRun, StandsBesideItsPlan) {
  const RunDigest run = explained({plan_event(1100), step_event(1), step_event(2)});
  const std::string text = explanation_text(run, {});
  EXPECT_TRUE(names(text, "device params", "1000 B", "+0.0%"));
  EXPECT_TRUE(names(text, "device at once", "1007 B", "+0.7%"));
  EXPECT_TRUE(names(text, "waits: host", "25.0%", "waits: step", "12.5%", "62.5%"));
  EXPECT_TRUE(names(text, "25% of the time waits for host memory: 900 B of the device's budget is free: offload less"));
  EXPECT_TRUE(names(text, "12% of the time waits for the optimizer's step", "--grad-accum"));

  const Event json = explanation_json(run, {});
  EXPECT_EQ(json.at("time").at("stalls").at("host"), 0.25);
  EXPECT_EQ(json.at("memory").at(0),
            Event({{"tier", "device"}, {"kind", "params"}, {"planned", 1000}, {"held", 1000}}));
  EXPECT_EQ(json.at("advice").size(), 2u);
}

TEST(ExplainedRun, AdvisesByWhatIsFree) {
  const std::string full = explanation_text(explained({plan_event(2000, true), step_event(1)}), {});
  EXPECT_TRUE(names(full, "a larger --micro-batch or --grad-accum", "--offload-param with a smaller share"));
  EXPECT_EQ(full.find("computed twice"), std::string::npos) << full;
  const std::string roomy = explanation_text(explained({plan_event(1000, true), step_event(1)}), {});
  EXPECT_TRUE(names(roomy, "activations are computed twice, and 1000 B of the device's budget is free"));
  Event still = step_event(1);
  still["stall_seconds"] = {{"host", 0.0}};
  EXPECT_TRUE(names(explanation_text(explained({plan_event(2000), still}), {}), "compute bounds the step"));
}

TEST(ExplainedRun, TellsWhatWasPredictedAndWhatWasMoved) {
  const Event rank{
      {"rank", 0}, {"link_bytes", {{"host_to_device", 4096}, {"device_to_host", 0}}}, {"io_bytes", {{"read", 2048}}}};
  const RunDigest run =
      explained({plan_event(1100), step_event(1), {{"event", "summary"}, {"ranks", Event::array({rank, rank})}}});
  const std::string text = explanation_text(run, {0.4, "zeepo probe of today"});
  EXPECT_TRUE(names(text, "time of a step", "400 ms", "500 ms", "+25.0%", "planned: zeepo probe of today"));
  EXPECT_TRUE(names(text, "host to device a step", "8.00 KiB", "read from files a step", "4.00 KiB"));
  EXPECT_EQ(text.find("device to host"), std::string::npos) << text;
  const Event json = explanation_json(run, {0.4, "zeepo probe of today"});
  EXPECT_EQ(json.at("time").at("predicted_seconds"), 0.4);
  EXPECT_EQ(json.at("bytes_per_step").at("link_bytes/host_to_device"), 8192.0);
  EXPECT_TRUE(explanation_json(run, {0, "no probe"}).at("time").at("predicted_seconds").is_null());
}

// A step like all but the first is predicted.
TEST(ExplainedRun, ComparesStepsThatHaveWarmedUp) {
  Event first = step_event(1);
  first["seconds"] = 20.0;
  const RunDigest run = explained({plan_event(1100), first, step_event(2), step_event(3)});
  EXPECT_EQ(explanation_json(run, {0.5, "a probe"}).at("time").at("seconds_per_step"), 0.5);
  EXPECT_TRUE(names(explanation_text(run, {0.5, "a probe"}), "time of a step", "500 ms", "+0.0%"));
}

TEST(ExplainedRun, NeedsAPlanAndSteps) {
  EXPECT_TRUE(names(error_text([] { explanation_text(explained({step_event(1)}), {}); }), "no plan"));
  EXPECT_TRUE(names(error_text([] { explanation_text(explained({plan_event(1)}), {}); }), "no step"));
}

// Logs may come from anywhere.
TEST(ExplainedRun, SurvivesAPlanThatNoRunWrites) {
  const Event odd{
      {"event", "plan"}, {"device", 5}, {"host", {{"bytes", "x"}, {"budget_bytes", -1}}}, {"placement", {1}}};
  EXPECT_TRUE(names(explanation_text(explained({odd, step_event(1)}), {}), "advice"));
  EXPECT_TRUE(explanation_json(explained({odd, step_event(1)}), {}).is_object());
}

}  // namespace
}  // namespace zeepo
