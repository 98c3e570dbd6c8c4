// Shards stepped inside the backward pass: the bits of a step after it that clips nothing, with fewer gradients kept.
#include <limits>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

class StepInBackward : public testing::Test {
 protected:
  ShardedRun base(int ranks, DType dtype, std::int64_t accumulation) const {
    return run_in_tiers(
        ranks, {.dtype = dtype, .stage = 3, .prefetch_bytes = 1 << 20, .accumulation = accumulation, .clip = 0},
        directory_.path());
  }
  template <class Model>
  static void expect_bits_of_the_step_after(ShardedRun run, const std::string& what) {
    run.options.step_phase = StepPhase::after_backward;
    run.options.clip = 1e30f;
    const auto after = train_ranks<Model>(run);
    run.options.clip = 0;
    run.options.step_phase = StepPhase::in_backward;
    expect_same_bits(train_ranks<Model>(run), after, what);
  }

  TestDirectory directory_;
};

TEST_F(StepInBackward, GivesTheBitsOfTheStepAfterItAtEveryStage) {
  for (const int ranks : {1, 3})
    for (const std::int64_t accumulation : {1, 2})
      for (const int stage : {0, 1, 2, 3}) {
        ShardedRun run = base(ranks, DType::bf16, accumulation);
        run.options.stage = stage;
        run.options.optimizer.moments = stage == 1 ? MomentType::eight_bit : MomentType::fp32;
        expect_bits_of_the_step_after<Wide>(
            run, fmt::format("stage {}, {} ranks, {} micro-steps", stage, ranks, accumulation));
      }
}

TEST_F(StepInBackward, GivesThemInEveryTier) {
  const std::vector<Placement> placements{{{}, {.host = 1}, Place::device},
                                          {{}, {.nvme = 1}, Place::device},
                                          {{.nvme = 1}, {}, Place::device},
                                          {{.host = 1}, {.nvme = 1}, Place::host},
                                          {{.host = 0.5}, {.host = 0.4, .nvme = 0.3}, Place::device}};
  for (const int ranks : {1, 2})
    for (const std::int64_t accumulation : {1, 2})
      for (const StepSide side : {StepSide::host, StepSide::device})
        for (std::size_t i = 0; i < placements.size(); ++i) {
          ShardedRun run = base(ranks, DType::bf16, accumulation);
          run.options.placement = placements[i];
          run.options.step_below_on = side;
          expect_bits_of_the_step_after<Wide>(run, fmt::format("placement {}, {} ranks, {} micro-steps, side {}", i,
                                                               ranks, accumulation, static_cast<int>(side)));
        }
}

TEST_F(StepInBackward, GivesThemForEveryUseOfParameters) {
  for (const int stage : {1, 3}) {
    ShardedRun run = base(2, DType::f32, 1);
    run.options.stage = stage;
    run.options.placement.optimizer = {.host = stage == 3 ? 1.0 : 0.0};
    for_every_use_of_parameters([&]<class Model>(const char* use) { expect_bits_of_the_step_after<Model>(run, use); });
    run.options.activation_checkpointing = true;
    expect_bits_of_the_step_after<Deep>(run, "deep");
  }
}

struct Trained {
  explicit Trained(const EngineOptions& options, const LowerTiers::Options& lower = {})
      : session({.threads = 1, .device_bytes = 64 << 20, .lower = lower}),
        engine(model, session.communicator(), options) {
    engine.load(fill_weights);
    session.restart_peaks();
  }
  void micro_step(float poison = 0) {
    Rows rows(0, 5);
    if (poison != 0) rows.x[2] = poison;
    engine.micro_step([&] { return loss_of(model, rows, DType::f32, 0); });
  }
  Session session;
  Wide model;
  ModelEngine engine;
};

TEST_F(StepInBackward, KeepsNoGradients) {
  EngineOptions options = base(1, DType::f32, 1).options;
  Trained after(options);
  options.step_phase = StepPhase::in_backward;
  Trained within(options);
  for (auto* run : {&after, &within})
    for (int step = 0; step < 2; ++step) {
      run->engine.expect_rate(0.1);
      run->micro_step();
      (void)run->engine.step(0.1);
    }
  EXPECT_EQ(within.session.memory().peak()[Kind::grads], 0);
  EXPECT_GT(after.session.memory().peak()[Kind::grads], 0);
  EXPECT_LT(within.session.memory().peak().total, after.session.memory().peak().total);
}

TEST_F(StepInBackward, AGradientThatIsNotFiniteIsAnErrorThatSaysWhatWasStepped) {
  EngineOptions options = base(1, DType::f32, 1).options;
  options.step_phase = StepPhase::in_backward;
  Trained run(options);
  std::map<std::string, std::vector<float>> weights;
  run.engine.expect_rate(0.1);
  run.micro_step(std::numeric_limits<float>::infinity());
  EXPECT_TRUE(names(error_text([&] { (void)run.engine.step(0.1); }), "have been stepped in the backward pass"));
  read_all(run.engine, weights);
  for (const auto& [name, values] : weights)
    for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name;
}

// What was stepped before the pass broke stays stepped, the rest is as before; and training goes on.
TEST_F(StepInBackward, APassThatThrowsLeavesTheUnitsItDidNotReach) {
  const ShardedRun run = base(1, DType::f32, 1);
  for (const Place place : kPlaces) {
    EngineOptions options = run.options;
    options.step_phase = StepPhase::in_backward;
    options.placement.optimizer = Shares::all_in(place);
    Trained trained(options, run.lower);
    std::map<std::string, std::vector<float>> before, broken, later;
    read_all(trained.engine, before);
    trained.engine.expect_rate(0.1);
    trained.model.breaks = true;
    EXPECT_TRUE(names(error_text([&] { trained.micro_step(); }), "broken backward"));
    read_all(trained.engine, broken);
    EXPECT_EQ(broken.at("second.linear.weight"), before.at("second.linear.weight")) << name_of(place);
    EXPECT_EQ(broken.at("first.linear.weight"), before.at("first.linear.weight")) << name_of(place);
    EXPECT_NE(broken.at("last.linear.weight"), before.at("last.linear.weight")) << name_of(place);
    trained.model.breaks = false;
    trained.engine.expect_rate(0.1);
    trained.micro_step();
    (void)trained.engine.step(0.1);
    read_all(trained.engine, later);
    for (const auto& [name, values] : later) EXPECT_NE(values, broken.at(name)) << name << " " << name_of(place);
  }
}

// A pass that throws before anything is stepped is no step: the next one has its number.
TEST_F(StepInBackward, APassThatThrowsDoesNotCount) {
  const ShardedRun run = base(1, DType::f32, 1);
  const auto weights = [&](Place place, bool breaks) {
    EngineOptions options = run.options;
    options.step_phase = StepPhase::in_backward;
    options.placement.optimizer = Shares::all_in(place);
    Trained trained(options, run.lower);
    for (int step = 0; step < 2; ++step) {
      trained.engine.expect_rate(0.1);
      const auto broken = [&] {
        Tensor loss = loss_of(trained.model, Rows(0, 5), DType::f32, 0);
        Tape::current()->record({&loss}, [](std::span<Tensor>) { throw Error("broken backward"); });
        return loss;
      };
      if (breaks) {
        EXPECT_TRUE(names(error_text([&] { trained.engine.micro_step(broken); }), "broken backward"));
      }
      trained.micro_step();
      (void)trained.engine.step(0.1);
    }
    std::map<std::string, std::vector<float>> result;
    read_all(trained.engine, result);
    return result;
  };
  for (const Place place : kPlaces) EXPECT_EQ(weights(place, true), weights(place, false)) << name_of(place);
}

// The gradients of `first` are broken in its bias alone, which lies in the shard of one rank.
class BrokenBias : public Module {
 public:
  Tensor both(const Tensor& x) { return second_(first_(x)); }
  Tensor hidden(const Tensor& x) { return first_(x); }

 private:
  Module &first_ = child<Linear>("first", kIn, 4), &second_ = child<Linear>("second", 4, kOut);
};

TEST_F(StepInBackward, RanksThatStepAllOfAUnitLeaveItTogether) {
  std::vector<std::vector<float>> seen(2);
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
    BrokenBias model;
    EngineOptions options{.stage = 0, .clip = 0};
    options.step_phase = StepPhase::in_backward;
    ModelEngine engine(model, communicator, options);
    engine.load([](const WeightSlice& slice, std::int64_t begin, std::span<float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const bool early = static_cast<std::int64_t>(i) + begin < 4;
        values[i] = slice.name == "second.weight" ? (early ? -3e38f : 3e38f) : slice.name == "first.weight" ? 0.5f : 0;
      }
    });
    engine.expect_rate(0.1);
    const std::vector<float> x(5 * kIn, 0.0f), ones(kIn, 1.0f);
    const std::vector<std::int32_t> targets(5, 0);
    engine.micro_step([&] {
      return cross_entropy(model.both(Tensor::from<float>(x, {5, kIn})), Tensor::from<std::int32_t>(targets, {5}));
    });
    EXPECT_THROW((void)engine.step(0.1), Error);
    engine.infer([&] {
      seen[static_cast<std::size_t>(communicator.rank())] =
          model.hidden(Tensor::from<float>(ones, {1, kIn})).to_floats();
    });
  });
  const std::vector<float> as_before(4, 0.5f * static_cast<float>(kIn));
  EXPECT_EQ(seen[0], as_before);
  EXPECT_EQ(seen[1], as_before);
}

// `never` is not used, so that the pieces below of those after it wait for the end of the pass.
class WaitsForOneUnused : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, bool breaks) {
    Tensor h = first_(x);
    if (breaks) {
      Tensor broken = h;
      Tape::current()->record({&broken}, [](std::span<Tensor>) { throw Error("broken backward"); });
      h = broken;
    }
    return cross_entropy(last_(second_(middle_(h))), targets);
  }

 private:
  static constexpr std::int64_t kWidth = 800;
  GeluBlock &first_ = child<GeluBlock>("first", kIn, kWidth), &middle_ = child<GeluBlock>("middle", kWidth, kWidth),
            &second_ = child<GeluBlock>("second", kWidth, kWidth), &never_ = child<GeluBlock>("never", kWidth, kWidth),
            &last_ = child<GeluBlock>("last", kWidth, kOut);
};

TEST_F(StepInBackward, RanksSeeTheSameWeightsAfterAPassThatThrew) {
  std::vector<float> losses(2);
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = 64 << 20, .lower = {.host_bytes = 64 << 20, .nvme_paths = {}}},
                    communicator);
    WaitsForOneUnused model;
    EngineOptions options{.stage = 1, .prefetch_bytes = 0, .clip = 0};
    options.step_phase = StepPhase::in_backward;
    options.placement.optimizer.host = 0.5;
    options.piece_elements = EngineOptions::kPieceAlignment;
    ModelEngine engine(model, communicator, options);
    engine.load(fill_weights);
    engine.expect_rate(0.1);
    const auto loss = [&](bool breaks) {
      const Rows rows(0, 5);
      return model.loss(of_dtype(DType::f32, rows.x, {5, kIn}), Tensor::from<std::int32_t>(rows.targets, {5}), breaks);
    };
    EXPECT_THROW(engine.micro_step([&] { return loss(true); }), Error);
    engine.infer([&] { losses[static_cast<std::size_t>(communicator.rank())] = loss(false).item(); });
  });
  EXPECT_EQ(losses[0], losses[1]);
}

// One rank of three fails in the middle of a pass, with units that it has stepped in part. It must not start a
// collective that the others do not: each of them would tell of calls that differ, and none of the cause.
TEST_F(StepInBackward, EveryRankTellsWhyOneOfThemFailed) {
  for (const int stage : {1, 2, 3})
    for (const std::int64_t prefetch_bytes : {0, 1 << 20})
      for (int broken = 0; broken < 3; ++broken) {
        std::vector<std::string> texts(3);
        ThreadsWorld world(3);
        const std::string first = error_text([&] {
          run(world, [&](Communicator& communicator) {
            Session session(
                {.threads = 1, .device_bytes = 64 << 20, .lower = {.host_bytes = 64 << 20, .nvme_paths = {}}},
                communicator);
            WaitsForOneUnused model;
            EngineOptions options{.stage = stage, .prefetch_bytes = prefetch_bytes, .clip = 0};
            options.step_phase = StepPhase::in_backward;
            options.placement.optimizer.host = 0.5;
            options.piece_elements = EngineOptions::kPieceAlignment;
            ModelEngine engine(model, communicator, options);
            engine.load(fill_weights);
            engine.expect_rate(0.1);
            const Rows rows(communicator.rank(), 5);
            const auto loss = [&] {
              return model.loss(of_dtype(DType::f32, rows.x, {5, kIn}), Tensor::from<std::int32_t>(rows.targets, {5}),
                                communicator.rank() == broken);
            };
            try {
              engine.micro_step(loss);
            } catch (const Error& error) {
              texts[static_cast<std::size_t>(communicator.rank())] = error.what();
              throw;
            }
          });
        });
        const std::string what = fmt::format("stage {}, prefetch {}, rank {}", stage, prefetch_bytes, broken);
        EXPECT_TRUE(names(first, fmt::format("rank {}", broken), "broken backward")) << what;
        for (const std::string& text : texts) EXPECT_TRUE(names(text, "broken backward")) << what;
      }
}

TEST_F(StepInBackward, NeedsTheRateBeforeIt) {
  EngineOptions options = base(1, DType::f32, 1).options;
  options.step_phase = StepPhase::in_backward;
  Trained run(options);
  EXPECT_TRUE(names(error_text([&] { run.micro_step(); }), "expect_rate"));
  run.engine.expect_rate(0.1);
  run.micro_step();
  EXPECT_TRUE(names(error_text([&] { (void)run.engine.step(0.2); }), "0.2"));
}

// The backward pass has stepped with the rate that was expected, whatever step() is told then.
TEST_F(StepInBackward, CountsAStepThatWasTakenWithAnotherRate) {
  EngineOptions options = base(1, DType::f32, 1).options;
  options.step_phase = StepPhase::in_backward;
  const auto weights = [&](double told) {
    Trained run(options);
    for (int step = 0; step < 2; ++step) {
      run.engine.expect_rate(0.1);
      run.micro_step();
      if (step == 0 && told != 0.1) {
        EXPECT_TRUE(names(error_text([&] { (void)run.engine.step(told); }), "0.2"));
      } else {
        (void)run.engine.step(0.1);
      }
    }
    std::map<std::string, std::vector<float>> result;
    read_all(run.engine, result);
    return result;
  };
  EXPECT_EQ(weights(0.2), weights(0.1));
}

// Between a pass that has stepped and step(), which tells of it.
TEST_F(StepInBackward, WeightsMayBeUsedBeforeStepIsCalled) {
  for (const int stage : {0, 1, 2, 3}) {
    EngineOptions options = base(2, DType::f32, 1).options;
    options.stage = stage;
    options.step_phase = StepPhase::in_backward;
    ThreadsWorld world(2);
    run(world, [&](Communicator& communicator) {
      Session session({.threads = 1, .device_bytes = 64 << 20}, communicator);
      Outside model;
      ModelEngine engine(model, communicator, options);
      engine.load(fill_weights);
      const auto loss = [&] { return loss_of(model, Rows(communicator.rank(), 3), DType::f32, 0); };
      for (int step = 0; step < 2; ++step) {
        engine.expect_rate(0.1);
        engine.micro_step(loss);
        float before = 0, after = 0;
        engine.infer([&] { before = loss().item(); });
        (void)engine.step(0.1);
        engine.infer([&] { after = loss().item(); });
        if (stage > 0) {
          EXPECT_EQ(before, after) << "stage " << stage;
        }
      }
    });
  }
}

TEST_F(StepInBackward, CannotClipOrScale) {
  EngineOptions options = base(1, DType::f32, 1).options;
  options.step_phase = StepPhase::in_backward;
  options.clip = 1;
  EXPECT_TRUE(names(error_text([&] { Trained run(options); }), "clip 1"));
  options.clip = 0;
  options.dtype = DType::f16;
  EXPECT_TRUE(names(error_text([&] { Trained run(options); }), "fp16"));
}

}  // namespace
}  // namespace zeepo
