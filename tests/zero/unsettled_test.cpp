// Steps that follow one another while the last one's is still under way: nothing sees a weight before its step.
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

enum class Settle { at_the_end, after_each_step };

struct Outcome {
  std::vector<float> losses, norms, inferred;
  std::map<std::string, std::vector<float>> weights;
};

template <class Model>
std::vector<Outcome> train(const ShardedRun& run, Settle settle) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(run.ranks));
  ThreadsWorld world(run.ranks);
  zeepo::run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower}, communicator);
    Model model;
    ModelEngine engine(model, communicator, run.options);
    engine.load(fill_weights);
    Outcome& own = outcomes[static_cast<std::size_t>(communicator.rank())];
    for (int step = 0; step < run.steps; ++step) {
      engine.expect_rate(run.lr);
      for (std::int64_t m = 0; m < run.options.accumulation; ++m) {
        Rows rows(((step * run.options.accumulation + m) * run.ranks + communicator.rank()) * run.rows, run.rows);
        if (step == run.poisoned_step && communicator.rank() == run.poisoned_rank)
          rows.x[2] = std::numeric_limits<float>::infinity();
        engine.micro_step([&] { return loss_of(model, rows, run.options.dtype, step); });
      }
      const StepResult result = engine.step(run.lr);
      if (settle == Settle::after_each_step) engine.settle();
      own.losses.push_back(result.loss);
      own.norms.push_back(result.grad_norm);
      if (run.infers && step == 1)
        engine.infer([&] {
          own.inferred.push_back(loss_of(model, Rows(communicator.rank(), 3), run.options.dtype, step).item());
        });
    }
    read_all(engine, own.weights);
  });
  return outcomes;
}

void expect_same(const std::vector<Outcome>& outcomes, const std::vector<Outcome>& reference, const std::string& what) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(bits(outcomes[rank].losses), bits(reference[rank].losses)) << what << ", rank " << rank;
    EXPECT_EQ(bits(outcomes[rank].norms), bits(reference[rank].norms)) << what << ", rank " << rank;
    EXPECT_EQ(bits(outcomes[rank].inferred), bits(reference[rank].inferred)) << what << ", rank " << rank;
    EXPECT_EQ(outcomes[rank].weights, reference[rank].weights) << what << ", rank " << rank;
  }
}

template <class Model>
void expect_same_at_every_stage(ShardedRun run, const std::string& what) {
  run.options.stage = 3;
  const auto reference = train<Model>(run, Settle::after_each_step);
  for (const int stage : {0, 1, 2, 3})
    for (const std::int64_t prefetch_bytes : {std::int64_t{0}, std::int64_t{6000}, std::int64_t{1} << 30}) {
      run.options.stage = stage;
      run.options.prefetch_bytes = prefetch_bytes;
      expect_same(train<Model>(run, Settle::at_the_end), reference,
                  fmt::format("{}, stage {}, {} ranks, prefetch {}", what, stage, run.ranks, prefetch_bytes));
    }
}

// The last module is used in every other pass only: nothing that is used comes after it.
class SometimesLast : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t pass) {
    Tensor h = gelu(first_(x));
    if (pass % 2 == 0) h = last_(h);
    return cross_entropy(h, targets);
  }

 private:
  Module &first_ = child<Linear>("first", kIn, kOut), &last_ = child<Linear>("last", kOut, kOut);
};

template <class Model>
class Unsettled : public ::testing::Test {};
using Models =
    ::testing::Types<Plain, Tied, UsedByTwo, CalledAgain, Frozen, Unused, SometimesLast, Branching, Outside, Deep>;
TYPED_TEST_SUITE(Unsettled, Models);

TYPED_TEST(Unsettled, StepsGiveTheSameBitsAtEveryStage) {
  for (const int ranks : {2, 3})
    for (const std::int64_t accumulation : {1, 2}) {
      ShardedRun run{.ranks = ranks, .options = {.dtype = DType::bf16, .accumulation = accumulation, .clip = 0.5f}};
      expect_same_at_every_stage<TypeParam>(run, fmt::format("{} micro-steps", accumulation));
      run.options.clip = 0;
      run.options.step_phase = StepPhase::in_backward;
      expect_same_at_every_stage<TypeParam>(run, fmt::format("in backward, {} micro-steps", accumulation));
    }
}

TEST(UnsettledSteps, ReducedLastGiveTheSameBits) {
  for (const int stage : {0, 1}) {
    const ShardedRun run{.ranks = 3, .options = {.stage = stage, .accumulation = 3, .reduce = Reduce::last}};
    expect_same(train<Deep>(run, Settle::at_the_end), train<Deep>(run, Settle::after_each_step),
                fmt::format("stage {}", stage));
  }
}

// The skipped step comes between two that are taken, and its gradients are not finite in every unit.
TEST(UnsettledSteps, AreSkippedAlike) {
  for (const std::int64_t accumulation : {1, 2})
    expect_same_at_every_stage<Deep>({.ranks = 3,
                                      .options = {.dtype = DType::f16,
                                                  .accumulation = accumulation,
                                                  .loss_scale = {.initial = 256, .least = 1, .patience = 1000}},
                                      .steps = 5,
                                      .poisoned_rank = 1,
                                      .poisoned_step = 2},
                                     fmt::format("{} micro-steps", accumulation));
}

// A pass that throws while the step before it is under way takes nothing of that step with it.
TEST(UnsettledSteps, OutliveAPassThatThrows) {
  enum class Throw { no, forward, backward };
  const auto weights = [](int stage, Throw where) {
    std::map<std::string, std::vector<float>> result;
    ThreadsWorld world(3);
    run(world, [&](Communicator& communicator) {
      Session session({.threads = 1, .device_bytes = 16 << 20}, communicator);
      Wide model;
      ModelEngine engine(model, communicator, {.stage = stage});
      engine.load(fill_weights);
      const auto pass = [&](Throw at) {
        model.breaks = at == Throw::backward;
        engine.micro_step([&] {
          Tensor loss = loss_of(model, Rows(communicator.rank(), 2), DType::f32, 0);
          if (at == Throw::forward) throw Error("broken forward");
          return loss;
        });
      };
      for (int step = 0; step < 3; ++step) {
        if (step > 0 && where != Throw::no) {
          EXPECT_TRUE(names(error_text([&] { pass(where); }), "broken"));
          EXPECT_TRUE(names(error_text([&] { engine.infer([] { throw Error("broken inference"); }); }), "inference"));
        }
        pass(Throw::no);
        (void)engine.step(0.1);
      }
      std::map<std::string, std::vector<float>> own;
      read_all(engine, own);
      if (communicator.rank() == 0) result = own;
    });
    return result;
  };
  const auto smooth = weights(0, Throw::no);
  for (const int stage : {0, 3})
    for (const Throw where : {Throw::forward, Throw::backward}) EXPECT_EQ(weights(stage, where), smooth) << stage;
}

TEST(UnsettledSteps, AGradientThatIsNotFiniteLeavesTheWeightsOfTheStepBefore) {
  for (const int stage : {0, 3}) {
    ThreadsWorld world(2);
    run(world, [&](Communicator& communicator) {
      Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
      Deep model;
      ModelEngine engine(model, communicator, {.stage = stage});
      engine.load(fill_weights);
      const auto pass = [&](float poison) {
        Rows rows(communicator.rank(), 2);
        rows.x[0] += poison;
        engine.micro_step([&] { return loss_of(model, rows, DType::f32, 0); });
      };
      std::map<std::string, std::vector<float>> before, after, later;
      pass(0);
      (void)engine.step(0.1);
      read_all(engine, before);
      pass(std::numeric_limits<float>::infinity());
      EXPECT_TRUE(names(error_text([&] { (void)engine.step(0.1); }), "the weights are as before this step"));
      read_all(engine, after);
      EXPECT_EQ(after, before) << stage;
      pass(0);
      (void)engine.step(0.1);
      read_all(engine, later);
      for (const auto& [name, values] : later) {
        EXPECT_NE(values, before.at(name)) << name;
        for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name;
      }
    });
  }
}

}  // namespace
}  // namespace zeepo
