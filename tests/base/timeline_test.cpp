#include "zeepo/base/timeline.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace zeepo {
namespace {

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Timeline, ASpanIsNamedAfterWhatItWorksOn) {
  Timeline timeline;
  { const Span span(&timeline, TimelineRow::reads, "read", {"optimizer", "h.3"}); }
  { const Span span(&timeline, TimelineRow::compute, "step"); }
  const std::string events = timeline.events(2);
  EXPECT_EQ(count(events, "\"name\":\"read optimizer h.3\""), 1u);
  EXPECT_EQ(count(events, "\"name\":\"step\""), 1u);
  EXPECT_EQ(count(events, "\"ph\":\"X\",\"pid\":2"), 2u);
  EXPECT_EQ(count(events, "{\"name\":\"rank 2\"}"), 1u);
  EXPECT_EQ(count(events, "{\"name\":\"file reads\"}"), 1u);
  EXPECT_EQ(count(events, "{\"name\":\"file writes\"}"), 0u);  // has no span
}

TEST(Timeline, NamesAreQuoted) {
  Timeline timeline;
  { const Span span(&timeline, TimelineRow::compute, "a \"b\" \\ \n"); }
  EXPECT_EQ(count(timeline.events(0), R"("name":"a \"b\" \\ \u000a")"), 1u);
}

TEST(Timeline, TimesAreMicrosecondsFromItsMaking) {
  Timeline timeline;
  const auto start = Timeline::Clock::now();
  timeline.add(TimelineRow::compute, "late", {}, start + std::chrono::seconds(7),
               start + std::chrono::seconds(7) + std::chrono::nanoseconds(1500));
  const std::string events = timeline.events(0);
  EXPECT_EQ(count(events, "\"dur\":1.500"), 1u);
  EXPECT_EQ(count(events, "\"ts\":7000"), 1u) << events;
}

TEST(Timeline, AShortWaitIsNotMarked) {
  Timeline timeline;
  { const Span span(&timeline, TimelineRow::compute, "wait", {}, std::chrono::hours(1)); }
  EXPECT_EQ(count(timeline.events(0), "\"ph\":\"X\""), 0u);
}

TEST(Timeline, AMovedSpanIsRecordedOnce) {
  Timeline timeline;
  {
    std::vector<Span> spans;
    for (int i = 0; i < 5; ++i) spans.emplace_back(&timeline, TimelineRow::compute, "forward");
  }
  EXPECT_EQ(count(timeline.events(0), "\"ph\":\"X\""), 5u);
}

TEST(Timeline, OldStepsAreDroppedAsAWhole) {
  Timeline timeline(10);
  for (int step = 1; step <= 5; ++step) {
    timeline.begin_step(step);
    for (int i = 0; i < 4; ++i) const Span span(&timeline, TimelineRow::compute, "forward");
  }
  EXPECT_EQ(timeline.steps(), (std::pair<std::int64_t, std::int64_t>{4, 5}));
  const std::string events = timeline.events(0);
  EXPECT_EQ(count(events, "\"step\":3}"), 0u);
  EXPECT_EQ(count(events, "\"step\":4}"), 4u);
  EXPECT_EQ(count(events, "\"step\":5}"), 4u);
}

TEST(Timeline, WhatCameBeforeTheFirstStepIsNotTold) {
  Timeline timeline;
  { const Span span(&timeline, TimelineRow::writes, "write", {"first weights", "h.0"}); }
  timeline.begin_step(3);
  { const Span span(&timeline, TimelineRow::compute, "forward"); }
  EXPECT_EQ(timeline.steps(), (std::pair<std::int64_t, std::int64_t>{3, 3}));
  EXPECT_EQ(count(timeline.events(0), "\"ph\":\"X\""), 1u);
}

TEST(Timeline, OfAStepThatIsTooLongTheEndIsTold) {
  Timeline timeline(3);
  timeline.begin_step(1);
  for (int i = 0; i < 4; ++i) const Span span(&timeline, TimelineRow::compute, "forward");
  const auto [first, last] = timeline.steps();
  EXPECT_GT(first, last);
  EXPECT_EQ(count(timeline.events(0), "\"ph\":\"X\""), 3u);
}

TEST(Timeline, AllThreadsRecord) {
  Timeline timeline;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) const Span span(&timeline, TimelineRow::collectives, "all-gather");
    });
  for (int i = 0; i < 100; ++i) timeline.begin_step(1);
  (void)timeline.events(0);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(timeline.steps().second, 1);
}

}  // namespace
}  // namespace zeepo
