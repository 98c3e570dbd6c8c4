#include "zeepo/train/step_time.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_model.h"
#include "zeepo/nn/module.h"

namespace zeepo {
namespace {

using Resource = SimulatedTime::Resource;

class StepTimes : public ::testing::Test {
 protected:
  // Of a model of 256 wide layers; all links fast.
  static SimulatedRates fast() {
    SimulatedRates rates;
    rates.products_fp32 = rates.products_16bit = rates.products_fp8 = rates.attention = 1e11;
    rates.device_memory = 1e11;
    rates.beside_host = true;
    rates.to_device = rates.to_host = rates.read = rates.write = rates.host_steps = 1e12;
    rates.within_node = rates.between_nodes = 1e12;
    return rates;
  }
  RunSetup setup(const Placement& placement, int ranks = 1, int stage = 0) {
    TrainOptions options = model_.options();
    options.seq_len = 32;
    options.placement = placement;
    options.stage = stage;
    options.prefetch_bytes = 4 << 20;  // a layer, and not the model
    if (placement.in_files()) options.nvme_paths = {"DIR"};
    return make_setup(options, {.rank = 0, .ranks = ranks, .ranks_on_node = 1});
  }
  static double busy(const StepTime& time, Resource resource) {
    return time.busy_seconds[static_cast<std::size_t>(resource)];
  }

  ScratchModel model_{256, 6, 1024, 4000};
};

TEST_F(StepTimes, AResidentStepIsAsLongAsItsComputation) {
  const StepTime time = predict_step(setup({}), fast());
  EXPECT_EQ(time.bound(), Resource::compute);
  EXPECT_NEAR(time.seconds, busy(time, Resource::compute), 0.01 * time.seconds);
  EXPECT_EQ(busy(time, Resource::to_device), 0);
  SimulatedRates twice = fast();
  twice.products_fp32 *= 2;
  twice.attention *= 2;
  twice.device_memory *= 2;
  EXPECT_NEAR(predict_step(setup({}), twice).seconds, time.seconds / 2, 0.02 * time.seconds);
}

TEST_F(StepTimes, ASlowLinkBoundsAStepByItsBytes) {
  SimulatedRates rates = fast();
  rates.to_device = rates.to_host = 1e6;
  const StepTime time = predict_step(setup({.params = {.host = 1}, .optimizer = {.host = 1}}), rates);
  EXPECT_EQ(time.bound(), Resource::to_device);
  // Gradients go down when the last parameters have come up.
  EXPECT_GE(time.seconds, busy(time, Resource::to_device));
  EXPECT_LE(time.seconds, 1.05 * (busy(time, Resource::to_device) + busy(time, Resource::to_host)));
  EXPECT_EQ(std::string(name_of(time.bound())), "host link");
}

// The host steps what lives in its memory: elements by its rate.
TEST_F(StepTimes, ASlowHostBoundsAStepByItsElements) {
  SimulatedRates rates = fast();
  rates.host_steps = 1e5;
  const RunSetup offloaded = setup({.params = {}, .optimizer = {.host = 1}});
  const StepTime time = predict_step(offloaded, rates);
  EXPECT_EQ(time.bound(), Resource::host_step);
  EXPECT_EQ(std::string(name_of(time.bound())), "host memory");
  EXPECT_GE(time.seconds, 0.999 * busy(time, Resource::host_step));
  std::int64_t elements = 0;
  for (const auto& named : named_parameters(*offloaded.model)) elements += named.parameter->elements();
  EXPECT_NEAR(busy(time, Resource::host_step) * 1e5 / static_cast<double>(elements), 1, 0.02);
}

TEST_F(StepTimes, SlowFilesBoundAStep) {
  SimulatedRates rates = fast();
  rates.read = rates.write = 1e6;
  const StepTime time = predict_step(setup({.params = {.nvme = 1}, .optimizer = {.nvme = 1}}), rates);
  EXPECT_EQ(time.bound(), Resource::files);
  EXPECT_GE(time.seconds, busy(time, Resource::files) * 0.99);
}

TEST_F(StepTimes, RanksWaitForASlowNetwork) {
  SimulatedRates rates = fast();
  rates.within_node = rates.between_nodes = 1e6;
  const StepTime slow = predict_step(setup({}, 4, 3), rates), quick = predict_step(setup({}, 4, 3), fast());
  EXPECT_EQ(slow.bound(), Resource::ranks);
  EXPECT_GT(slow.seconds, 10 * quick.seconds);
  // Stage 3 sends half as much again as stage 2.
  EXPECT_NEAR(busy(slow, Resource::ranks) / busy(predict_step(setup({}, 4, 2), rates), Resource::ranks), 1.5, 0.1);
}

TEST_F(StepTimes, MoreMicroStepsTakeProportionallyLonger) {
  TrainOptions options = setup({}).options;
  options.grad_accum = 4;
  const double four = predict_step(make_setup(options, {}), fast()).seconds;
  options.grad_accum = 16;
  const double sixteen = predict_step(make_setup(options, {}), fast()).seconds;
  EXPECT_NEAR(sixteen / four, 4, 0.2);
}

// The largest layers cannot be fetched ahead of use within a small prefetch: then compute and links take turns.
TEST_F(StepTimes, OverlapHelps) {
  SimulatedRates rates = fast();
  rates.to_device = rates.to_host = 5e8;
  RunSetup ahead = setup({.params = {.host = 1}, .optimizer = {}});
  RunSetup in_turns = ahead;
  in_turns.options.prefetch_bytes = 0;
  EXPECT_LT(predict_step(ahead, rates).seconds, 0.9 * predict_step(in_turns, rates).seconds);
}

}  // namespace
}  // namespace zeepo
