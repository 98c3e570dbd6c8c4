#include "zeepo/metrics/event_sinks.h"

#include "tests/metrics/events.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

// Keeps what it gets; fails at some of its events.
class Kept final : public EventSink {
 public:
  Kept(std::string name, std::vector<Event>& events, int fails_from = 1 << 30, int fails_until = 1 << 30,
       bool recovers = false)
      : name_(std::move(name)),
        events_(events),
        fails_from_(fails_from),
        fails_until_(fails_until),
        recovers_(recovers) {}
  std::string name() const override { return name_; }
  bool recovers() const override { return recovers_; }
  void write(const Event& event) override {
    const int number = asked_++;
    if (number >= fails_from_ && number < fails_until_) throw Error("the disk is full");
    events_.push_back(event);
  }

 private:
  std::string name_;
  std::vector<Event>& events_;
  int fails_from_, fails_until_, asked_ = 0;
  bool recovers_;
};

TEST(EventSinks, OneThatFailsIsSaidOnceAndTheOthersGoOn) {
  std::vector<Event> whole, broken;
  EventSinks sinks;
  sinks.add(std::make_unique<Kept>("--csv broken", broken, 1));
  sinks.add(std::make_unique<Kept>("--log whole", whole));
  testing::internal::CaptureStderr();
  for (int step = 1; step <= 4; ++step) sinks.write(step_event(step));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(names(said, "warning: --csv broken: the disk is full", "the run goes on"));
  EXPECT_EQ(said.find("the disk is full"), said.rfind("the disk is full"));
  EXPECT_EQ(broken.size(), 1u);
  ASSERT_EQ(whole.size(), 5u);  // four steps, and the fault
  EXPECT_EQ(kind_of(whole[2]), "fault");
  EXPECT_EQ(step_of(whole[2]), 2);
  EXPECT_EQ(whole[2].at("what"), "metrics");
  EXPECT_TRUE(names(whole[2].at("message").get<std::string>(), "--csv broken"));
  EXPECT_TRUE(names(error_text([&] { sinks.check(); }), "--csv broken", "not complete"));
}

TEST(EventSinks, OneThatRecoversIsCompleteAgain) {
  std::vector<Event> events;
  EventSinks sinks;
  sinks.add(std::make_unique<Kept>("--prometheus p", events, 1, 3, true));
  testing::internal::CaptureStderr();
  for (int step = 1; step <= 2; ++step) sinks.write(step_event(step));
  EXPECT_THROW(sinks.check(), Error);
  for (int step = 3; step <= 4; ++step) sinks.write(step_event(step));
  EXPECT_TRUE(names(testing::internal::GetCapturedStderr(), "warning: --prometheus p"));
  EXPECT_NO_THROW(sinks.check());
  EXPECT_EQ(step_of(events.back()), 4);
}

TEST(EventSinks, AllMayFailAtOnce) {
  std::vector<Event> none;
  EventSinks sinks;
  for (int i = 0; i < 3; ++i) sinks.add(std::make_unique<Kept>(fmt::format("--sink{}", i), none, 0, 1 << 30, i == 1));
  testing::internal::CaptureStderr();
  for (int step = 1; step <= 3; ++step) sinks.write(step_event(step));
  const std::string said = testing::internal::GetCapturedStderr();
  for (const char* name : {"--sink0", "--sink1", "--sink2"}) {
    EXPECT_EQ(said.find(name), said.rfind(name)) << said;
    EXPECT_TRUE(names(error_text([&] { sinks.check(); }), name));
  }
}

}  // namespace
}  // namespace zeepo
