#include "zeepo/device/simulated_time.h"

#include <gtest/gtest.h>

#include "zeepo/device/worker.h"

namespace zeepo {
namespace {

using Lane = SimulatedTime::Lane;
using Resource = SimulatedTime::Resource;

SimulatedRates gpu_rates() {
  SimulatedRates rates;
  rates.beside_host = true;
  return rates;
}

TEST(Calendar, WorkTakesTheFirstTimeThatIsFree) {
  Calendar calendar;
  EXPECT_EQ(calendar.take(0, 0, 2), 2);
  EXPECT_EQ(calendar.take(0, 10, 5), 15);
  EXPECT_EQ(calendar.take(0, 0, 3), 5);   // between the two
  EXPECT_EQ(calendar.take(0, 4, 6), 16);  // five before the second, one after it
  EXPECT_EQ(calendar.take(0, 0, 1), 17);  // nothing is left before
  EXPECT_EQ(calendar.take(20, 20, 1), 21);
  EXPECT_EQ(calendar.busy_seconds(), 18);
}

TEST(SimulatedTime, TheHostRunsAheadOfAGpuAndNotOfACpu) {
  SimulatedTime gpu(gpu_rates());
  gpu.compute(3);
  EXPECT_EQ(gpu.now(), 0);
  EXPECT_EQ(gpu.computed(), 3);
  gpu.wait_until(gpu.computed());
  EXPECT_EQ(gpu.now(), 3);
  SimulatedTime cpu{SimulatedRates{}};
  cpu.compute(3);
  EXPECT_EQ(cpu.now(), 3);
}

TEST(SimulatedTime, ALaneKeepsItsOrderAndLanesShareAResource) {
  SimulatedTime time(gpu_rates());
  const SimulatedTime::Part two{Resource::to_device, 2}, one{Resource::to_device, 1};
  EXPECT_EQ(time.run(Lane::up, 5, {&two, 1}), 7);
  EXPECT_EQ(time.run(Lane::up, 0, {&one, 1}), 8);              // after the first of its lane
  EXPECT_EQ(time.run(Lane::up_out_of_band, 0, {&two, 1}), 2);  // another lane, while the link is free
  EXPECT_EQ(time.run(Lane::up_out_of_band, 4, {&two, 1}), 9);  // a second before the others, one after them
  EXPECT_EQ(time.busy_seconds()[static_cast<std::size_t>(Resource::to_device)], 7);
}

// Reading and copying overlap but for one piece.
TEST(SimulatedTime, APipelineTakesAsLongAsItsSlowerPart) {
  SimulatedTime time(gpu_rates());
  EXPECT_DOUBLE_EQ(time.run_pipelined(Lane::up, 0, {Resource::files, 8}, {Resource::to_device, 4}, 0.25), 9);
  SimulatedTime other(gpu_rates());
  EXPECT_DOUBLE_EQ(other.run_pipelined(Lane::up, 0, {Resource::files, 4}, {Resource::to_device, 8}, 0.25), 9);
}

TEST(SimulatedTime, WaitingForACompletionSetsTheClock) {
  SimulatedTime time(gpu_rates());
  Completion completion = Completion::at(time, 4);
  EXPECT_FALSE(completion.done());
  completion.wait();
  EXPECT_EQ(time.now(), 4);
  EXPECT_TRUE(completion.done());
  completion.wait();
  Completion::at(time, 3).wait();  // a clock does not go back
  EXPECT_EQ(time.now(), 4);
}

}  // namespace
}  // namespace zeepo
