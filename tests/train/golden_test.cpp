// Training and logits against what PyTorch says, for every golden model. In fp32 only the order of sums differs, so the
// limits are a tenth of what is promised: an error near them is a bug, not noise.
#include <cmath>

#include "tests/support/golden.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {
namespace {

class EveryGolden : public ::testing::TestWithParam<std::string> {
 protected:
  const Golden golden_ = load_golden(GetParam());
};
INSTANTIATE_TEST_SUITE_P(Models, EveryGolden, ::testing::ValuesIn(golden_names()), golden_test_name);

void expect_relative(const std::vector<float>& values, const std::vector<double>& expected, double limit,
                     const char* what) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], limit * std::abs(expected[i])) << what << " of step " << i + 1;
}

TEST_P(EveryGolden, TrainsAsPyTorchDoes) {
  const auto result = train_golden(golden_);
  expect_relative(result.losses, golden_.values.at("losses"), 1e-5, "loss");
  expect_relative(result.norms, golden_.values.at("grad_norms"), 1e-4, "gradient norm");
  const SafetensorsFile file(golden_.directory / "golden.safetensors");
  for (const auto& [name, values] : result.weights) {
    if (!file.find("final." + name)) continue;
    const auto expected = read_tensor(file, "final." + name);
    ASSERT_EQ(values.size(), expected.size()) << name;
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(values[i], expected[i], 1e-4) << name << "[" << i << "]";
  }
}

// Plain SGD with a rate of 1 subtracts exactly the gradient.
TEST_P(EveryGolden, FirstGradientsAreThoseOfPyTorch) {
  const SafetensorsFile file(golden_.directory / "golden.safetensors");
  const OptimizerOptions sgd{.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0};
  const auto before = train_golden(golden_, {.steps = 1, .lr = 0, .clip = 0, .optimizer = sgd});
  const auto after = train_golden(golden_, {.steps = 1, .lr = 1, .clip = 0, .optimizer = sgd});
  int compared = 0;
  for (const auto& [name, values] : after.weights) {
    if (!file.find("grad." + name)) continue;
    ++compared;
    const auto expected = read_tensor(file, "grad." + name);
    const auto& first = before.weights.at(name);
    for (std::size_t i = 0; i < values.size(); ++i)
      ASSERT_NEAR(first[i] - values[i], expected[i], 1e-6 + 1e-5 * std::abs(expected[i])) << name << "[" << i << "]";
  }
  if (GetParam().starts_with("golden/")) {
    EXPECT_GT(compared, 0);
  }
}

TEST_P(EveryGolden, CheckpointingChangesNoBit) {
  for (const float dropout : {0.0f, 0.2f}) {
    const auto plain = train_golden(golden_, {.steps = 4, .dropout = dropout});
    const auto checkpointed = train_golden(golden_, {.steps = 4, .activation_checkpointing = true, .dropout = dropout});
    EXPECT_EQ(plain.losses, checkpointed.losses) << "dropout " << dropout;
    EXPECT_EQ(plain.norms, checkpointed.norms) << "dropout " << dropout;
    EXPECT_EQ(plain.hashes, checkpointed.hashes) << "dropout " << dropout;
    EXPECT_LT(checkpointed.peaks.back()[Kind::activations], plain.peaks.back()[Kind::activations]);
  }
}

TEST_P(EveryGolden, AccumulationAgreesWithTheLargerBatch) {
  for (const std::int64_t accumulation : {2, 4}) {
    const auto result = train_golden(golden_, {.accumulation = accumulation});
    expect_relative(result.losses, golden_.values.at("losses"), 1e-5, "loss");
    expect_relative(result.norms, golden_.values.at("grad_norms"), 1e-4, "gradient norm");
  }
}

TEST_P(EveryGolden, ThreadsChangeNoBit) {
  const auto one = train_golden(golden_, {.steps = 3, .threads = 1});
  for (const int threads : {1, 2, 3}) {
    const auto several = train_golden(golden_, {.steps = 3, .threads = threads});
    EXPECT_EQ(several.losses, one.losses) << threads;
    EXPECT_EQ(several.norms, one.norms) << threads;
    EXPECT_EQ(several.hashes, one.hashes) << threads;
  }
}

TEST_P(EveryGolden, LogitsAreThoseOfPyTorch) {
  const SafetensorsFile file(golden_.directory / "golden.safetensors");
  const auto& entry = file.at("input_ids");
  std::vector<std::int64_t> stored(static_cast<std::size_t>(entry.elements));
  file.read_integers(entry, 0, stored);
  const std::vector<std::int32_t> ids(stored.begin(), stored.end());

  Session session({.threads = 2, .device_bytes = std::int64_t{1} << 28});
  const auto model = make_model(golden_.config);
  ModelEngine engine(*model, session.communicator(), {.use = Use::infer});
  const WeightFiles files(golden_.directory);
  engine.load(stored_weights(golden_.config, engine.slices(), files));
  const auto logits = model->logits(Tensor::from<std::int32_t>(ids, {entry.shape[0], entry.shape[1]})).to_floats();
  const auto expected = read_tensor(file, "logits");
  ASSERT_EQ(logits.size(), expected.size());
  for (std::size_t i = 0; i < logits.size(); ++i)
    ASSERT_NEAR(logits[i], expected[i], 1e-5 * (1 + std::abs(expected[i]))) << i;
}

class Sixteen : public EveryGolden {};
INSTANTIATE_TEST_SUITE_P(Models, Sixteen,
                         ::testing::Values("golden/gpt2-tiny", "golden/llama-tiny", "golden/llama-old-spelling",
                                           "golden/mistral-tiny", "golden/qwen2-tiny", "golden/qwen3-tiny"),
                         golden_test_name);

TEST_P(Sixteen, FollowsFp32WithinOnePercent) {
  const GoldenRun fp32{.steps = 48, .lr = 1e-4};
  const auto expected = train_golden(golden_, fp32);
  for (const DType dtype : {DType::bf16, DType::f16}) {
    GoldenRun run = fp32;
    run.dtype = dtype;
    const auto result = train_golden(golden_, run);
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(result.losses[i], expected.losses[i], 0.01 * expected.losses[i])
          << name_of(dtype) << " step " << i + 1;
  }
}

TEST_P(Sixteen, AnOverflowSkipsTheStepLowersTheScaleAndRecovers) {
  const auto result = train_golden(
      golden_,
      {.steps = 40, .lr = 1e-3, .dtype = DType::f16, .loss_scale = {.initial = 0x1p31f, .least = 1, .patience = 1000}});
  ASSERT_TRUE(result.skipped.front());
  std::size_t recovered = 0;
  for (std::size_t i = 0; i < result.losses.size(); ++i) {
    if (result.skipped[i]) {
      EXPECT_EQ(result.hashes[i + 1], result.hashes[i]) << "step " << i + 1 << " was skipped but changed a weight";
      if (i + 1 < result.scales.size()) {
        EXPECT_EQ(result.scales[i + 1], result.scales[i] / 2);
      }
    } else {
      EXPECT_NE(result.hashes[i + 1], result.hashes[i]) << "step " << i + 1;
      ++recovered;
    }
  }
  EXPECT_GT(recovered, 15u);
  EXPECT_LT(result.scales.back(), 0x1p31f);
  // The samples repeat after 12 steps: compare like with like.
  EXPECT_LT(result.losses[36], result.losses[0]);
}

TEST_P(Sixteen, TheSameRunTwiceHasTheSameBits) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const GoldenRun run{.steps = 4, .dtype = dtype, .dropout = 0.1f};
    EXPECT_EQ(train_golden(golden_, run).hashes, train_golden(golden_, run).hashes) << name_of(dtype);
  }
}

TEST_P(Sixteen, ThreadsAndCheckpointingChangeNoBit) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto one = train_golden(golden_, {.steps = 3, .threads = 1, .dtype = dtype});
    const auto three =
        train_golden(golden_, {.steps = 3, .threads = 3, .dtype = dtype, .activation_checkpointing = true});
    EXPECT_EQ(one.losses, three.losses) << name_of(dtype);
    EXPECT_EQ(one.hashes, three.hashes) << name_of(dtype);
  }
}

}  // namespace
}  // namespace zeepo
