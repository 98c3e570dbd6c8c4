// Ops that add each micro-step's gradients to their fp32 sums themselves, as on a GPU: the same bits wherever states
// live, fewer roundings, and nothing held beside the sums.
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/ops/norm.h"

namespace zeepo {
namespace {

class OpsAddGradients : public testing::Test {
 protected:
  ShardedRun base(int ranks, DType dtype) const {
    ShardedRun run = clipped_run_in_tiers(ranks, dtype, 3, directory_.path());
    run.options.sum_order = SumOrder::local;
    run.options.step_below_on = StepSide::device;
    run.steps = 4;
    return run;
  }
  template <class Model>
  static void expect_near_sums_apart(ShardedRun run, const std::string& what) {
    const auto added = train_ranks<Model>(run);
    run.options.sum_order = SumOrder::global;
    expect_near(added[0], train_ranks<Model>(run)[0], run.options.dtype == DType::f32 ? 1e-5 : 2e-2, what);
  }

  TestDirectory directory_;
};

TEST_F(OpsAddGradients, GivesTheSameBitsInEveryTier) {
  const std::vector<Placement> placements{{{}, {.host = 1}, Place::device},
                                          {{}, {.nvme = 1}, Place::device},
                                          {{.nvme = 1}, {}, Place::device},
                                          {{.host = 1}, {.nvme = 1}, Place::host},
                                          {{.host = 0.5}, {.host = 0.4, .nvme = 0.3}, Place::device}};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const StepPhase phase : {StepPhase::after_backward, StepPhase::in_backward}) {
      if (phase == StepPhase::in_backward && dtype == DType::f16) continue;
      ShardedRun run = base(1, dtype);
      run.options.step_phase = phase;
      if (phase == StepPhase::in_backward) run.options.clip = 0;
      const auto reference = train_ranks<Wide>(run);
      for (std::size_t i = 0; i < placements.size(); ++i) {
        run.options.placement = placements[i];
        expect_same_bits(train_ranks<Wide>(run), reference,
                         fmt::format("{}, placement {}, phase {}", name_of(dtype), i, static_cast<int>(phase)));
      }
    }
}

TEST_F(OpsAddGradients, GivesTheSameBitsAtEveryStage) {
  ShardedRun run = base(1, DType::bf16);
  const auto reference = train_ranks<Wide>(run);
  for (const int stage : {0, 1, 2}) {
    run.options.stage = stage;
    expect_same_bits(train_ranks<Wide>(run), reference, fmt::format("stage {}", stage));
  }
}

TEST_F(OpsAddGradients, SumsEveryUseOfParameters) {
  const ShardedRun run = base(1, DType::f32);
  for_every_use_of_parameters([&]<class Model>(const char* use) { expect_near_sums_apart<Model>(run, use); });
}

// A weight that is normalised before its use.
class Normalised : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(linear(x, rms_norm(weight_, scale_, 1e-5f)), targets);
  }

 private:
  Parameter &weight_ = parameter("weight", {kOut, kIn}, Init::ones()),
            &scale_ = parameter("scale", {kIn}, Init::ones());
};

// An op whose gradient of x cannot be fp32 where x is not.
TEST_F(OpsAddGradients, SumsWhatANormGives) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    ShardedRun run = base(1, dtype);
    run.options.optimizer = kPlainSgd;
    expect_near_sums_apart<Normalised>(run, std::string(name_of(dtype)));
  }
}

// Squared distance from the weights of an fp32 run.
template <class Model>
double error_in(ShardedRun run) {
  run.options.optimizer = kPlainSgd;
  run.options.clip = 0;
  run.options.accumulation = 8;
  const auto weights = train_ranks<Model>(run)[0].weights;
  run.options.dtype = DType::f32;
  const auto exact = train_ranks<Model>(run)[0].weights;
  double sum = 0;
  for (const auto& [name, values] : exact)
    for (std::size_t i = 0; i < values.size(); ++i) sum += std::pow(weights.at(name)[i] - values[i], 2);
  return sum;
}

TEST_F(OpsAddGradients, RoundsLessThanSumsApart) {
  ShardedRun run = base(1, DType::bf16);
  run.steps = 1;
  const double added = error_in<Wide>(run);
  run.options.sum_order = SumOrder::global;
  EXPECT_LT(added, error_in<Wide>(run));
}

TEST_F(OpsAddGradients, HoldsNoGradientsBesideTheirSums) {
  std::int64_t peaks[2] = {}, largest = 0;
  for (const bool adds : {false, true}) {
    ShardedRun run = base(1, DType::bf16);
    run.options.sum_order = adds ? SumOrder::local : SumOrder::global;
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
    Wide model;
    ModelEngine engine(model, session.communicator(), run.options);
    engine.load(fill_weights);
    session.restart_peaks();
    for (int m = 0; m < 3; ++m) engine.micro_step([&] { return loss_of(model, Rows(m, 1), DType::bf16, 0); });
    (void)engine.step(0.1);
    peaks[adds] = session.memory().peak()[Kind::working];
    for (const auto& unit : engine.units().units) largest = std::max(largest, unit.elements);
  }
  EXPECT_LE(peaks[true], peaks[false] - largest * 2);
}

TEST_F(OpsAddGradients, LeavesSeveralRanksAlone) {
  ShardedRun run = base(2, DType::bf16);
  const auto with = train_ranks<Wide>(run);
  run.options.sum_order = SumOrder::global;
  expect_same_bits(with, train_ranks<Wide>(run), "two ranks");
}

TEST_F(OpsAddGradients, RefusesSumsBelowTheDevice) {
  ShardedRun run = base(1, DType::bf16);
  run.options.step_below_on = StepSide::host;
  run.options.placement.optimizer = {.host = 1};
  EXPECT_TRUE(names(error_text([&] { train_ranks<Wide>(run); }), "add to gradient sums", "let the device step"));
}

}  // namespace
}  // namespace zeepo
