// The figures of the ZeRO-Infinity paper, and others counted by hand.
#include "zeepo/plan/infinity_formulas.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/plan/paper_tables.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr double kGibibyte = 0x1p30, kTebibyte = 0x1p40;
constexpr std::int64_t kSeqLen = 1024;

double tebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / kTebibyte; }
double gibibytes(std::int64_t bytes) { return static_cast<double>(bytes) / kGibibyte; }
void expect_printed(double value, double printed) { EXPECT_NEAR(value, printed, kInfinityDigit); }

TEST(InfinityFormulas, GiveTheTableOfThePaper) {
  for (const InfinityRow& row : infinity_table()) {
    SCOPED_TRACE(row.trillions);
    const TransformerShape shape{row.layers, row.hidden, row.heads};
    const TokenBatchShape gpu{4, kSeqLen}, node{4 * 16, kSeqLen}, checkpointed{32, kSeqLen};
    expect_printed(static_cast<double>(transformer_params(shape)) / 1e12, row.trillions);
    expect_printed(tebibytes(model_state_bytes(shape)), row.states);
    expect_printed(tebibytes(activation_bytes(shape, node)), row.activations);
    expect_printed(tebibytes(activation_checkpoint_bytes(shape, checkpointed, 1)), row.checkpoints);
    expect_printed(gibibytes(model_state_working_bytes(shape.hidden)), row.state_working);
    expect_printed(gibibytes(activation_working_bytes(shape, gpu, 1)), row.activation_working);
  }
}

// By hand.
TEST(InfinityFormulas, CountSmallShapes) {
  const TransformerShape shape{.layers = 6, .hidden = 8, .heads = 2};
  const TokenBatchShape batch{.samples = 3, .seq_len = 5};
  EXPECT_EQ(transformer_params(shape), 12 * 6 * 64);
  EXPECT_EQ(model_state_bytes(shape), 240 * 6 * 64);
  EXPECT_EQ(activation_checkpoint_bytes(shape, batch, 1), 2 * 3 * 5 * 8 * 6);
  EXPECT_EQ(activation_checkpoint_bytes(shape, batch, 2), 2 * 3 * 5 * 8 * 3);
  EXPECT_EQ(activation_working_bytes(shape, batch, 1), 3 * 5 * (16 * 8 + 2 * 2 * 5));
  EXPECT_EQ(activation_working_bytes(shape, batch, 2), 2 * 3 * 5 * (16 * 8 + 2 * 2 * 5));
  EXPECT_EQ(activation_bytes(shape, batch), 6 * 3 * 5 * (16 * 8 + 2 * 2 * 5));
  EXPECT_EQ(model_state_working_bytes(8), 4 * 8 * 4 * 8);
  EXPECT_EQ(work_per_iteration(1000, batch), 8.0 * 3 * 5 * 1000);
}

TEST(InfinityFormulas, GiveIntensities) {
  EXPECT_EQ(intensity_of_params_and_grads({2, 1024}), 2048);
  EXPECT_EQ(intensity_of_optimizer_states({2, 1024}), 512);
  EXPECT_EQ(intensity_of_activation_checkpoints(8192, 1), 196'608);
  EXPECT_EQ(intensity_of_activation_checkpoints(8192, 3), 3 * 196'608);
}

// Section 4.2 with 70 TFLOP/s a GPU: about 70 GB/s for half of the peak at batch 1; below 2 GB/s for checkpoints at a
// width of 2K, below 1 GB/s from 8K on.
TEST(InfinityFormulas, GiveTheBandwidthsOfThePaper) {
  constexpr double kPeak = 70e12;
  EXPECT_DOUBLE_EQ(bandwidth_for(0.5, intensity_of_params_and_grads({1, 1024}), kPeak), 68.359375e9);
  EXPECT_DOUBLE_EQ(bandwidth_for(0.9, intensity_of_optimizer_states({2, 1024}), kPeak), 9 * 70e12 / 512);
  EXPECT_LT(bandwidth_for(0.5, intensity_of_activation_checkpoints(2048, 1), kPeak), 2e9);
  EXPECT_LT(bandwidth_for(0.5, intensity_of_activation_checkpoints(8192, 1), kPeak), 1e9);
}

TEST(InfinityFormulas, EfficiencyAndBandwidthAreInverse) {
  for (const double efficiency : {0.01, 0.25, 0.5, 0.9, 0.999})
    for (const double intensity : {1.0, 256.0, 1e6})
      EXPECT_NEAR(efficiency_at(bandwidth_for(efficiency, intensity, 3e14), intensity, 3e14), efficiency, 1e-12);
  EXPECT_EQ(efficiency_at(0, 100, 1e12), 0);
  EXPECT_EQ(bandwidth_for(0, 100, 1e12), 0);
  EXPECT_DOUBLE_EQ(efficiency_at(1e10, 100, 1e12), 0.5);
  EXPECT_DOUBLE_EQ(efficiency_at(3e10, 100, 1e12), 0.75);
}

TEST(InfinityFormulas, RefuseNonsense) {
  const auto says = [](auto&& f, auto... parts) { EXPECT_TRUE(names(error_text(f), parts...)); };
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  says([] { transformer_params({0, 64, 4}); }, "--layers 0", "at least 1");
  says([] { transformer_params({2, -64, 4}); }, "--hidden -64");
  says([] { transformer_params({2, 64, 0}); }, "--heads 0");
  says([] { transformer_params({2, 64, 5}); }, "--heads 5", "divide", "--hidden 64");
  says([] { transformer_params({100, 1'000'000'000, 1}); }, "2^63");
  says([] { activation_bytes({100, 1 << 20, 1}, {1 << 30, 1 << 20}); }, "2^63");
  says([] { activation_bytes({2, 64, 4}, {0, 8}); }, "--micro-batch 0");
  says([] { activation_bytes({2, 64, 4}, {1, 0}); }, "--seq-len 0");
  says([] { activation_checkpoint_bytes({2, 64, 4}, {1, 8}, 0); }, "--checkpoint-interval 0");
  says([] { activation_checkpoint_bytes({2, 64, 4}, {1, 8}, 3); }, "--checkpoint-interval 3", "2 layers");
  says([] { bandwidth_for(1, 100, 1e12); }, "efficiency 1", "below 1");
  says([] { bandwidth_for(-0.1, 100, 1e12); }, "efficiency -0.1");
  says([] { bandwidth_for(kNan, 100, 1e12); }, "efficiency nan");
  says([] { bandwidth_for(0.5, 100, 0); }, "--peak-tflops 0");
  says([] { efficiency_at(kNan, 100, 1e12); }, "--bandwidth nan");
  says([] { efficiency_at(-1, 100, 1e12); }, "--bandwidth -1");
  says([] { efficiency_at(1, 100, INFINITY); }, "--peak-tflops inf");
}

}  // namespace
}  // namespace zeepo
