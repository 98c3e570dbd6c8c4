#include "zeepo/train/report.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

// The first step of a resumed run takes 20 ms, and 999,999 are left: hours, however many steps came before.
TEST(Progress, OfAResumedRunGoesByItsOwnSteps) {
  testing::internal::CaptureStderr();
  {
    Progress progress(2'000'000, 1'000'000);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    StepReport report{};
    report.step = 1'000'001;
    progress.step(report);
  }
  EXPECT_TRUE(names(testing::internal::GetCapturedStderr(), "step 1000001/2000000", " h ", " left"));
}

}  // namespace
}  // namespace zeepo
