// Passes and gradients as a foreign autograd would tell of them: of a loss of half the weights' squares, whose
// gradients are the weights.
#include "zeepo/torch/torch_engine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/support/errors.h"
#include "zeepo/comm/threads/threads_world.h"

namespace zeepo {
namespace {

constexpr std::int64_t kElements = 300;
constexpr std::size_t kUnits = 4;

// A unit has a parameter of each of two groups.
UnitPlan four_units() {
  UnitPlan plan;
  for (std::size_t u = 0; u < kUnits; ++u) {
    Unit unit{fmt::format("unit {}", u), {}, 0};
    for (std::size_t group = 0; group < 2; ++group) {
      UnitParameter parameter{unit.elements, {kElements}, true, {}, group};
      parameter.weights.push_back({{fmt::format("{}.{}", u, group), {kElements}}, 0, kElements});
      unit.parameters.push_back(parameter);
      unit.elements += 384;
    }
    plan.units.push_back(unit);
  }
  return plan;
}

EngineOptions sgd(int stage = 0, const Placement& placement = {}) {
  EngineOptions options{.stage = stage, .prefetch_bytes = 2000};
  options.optimizer = {.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0};
  options.placement = placement;
  options.clip = 0;
  return options;
}

RuntimeOptions small() {
  return {.backend = Backend::cpu,
          .threads = 1,
          .device_bytes = 16 << 20,
          .host_bytes = 16 << 20,
          .report = ReportAs::nothing};
}

std::vector<StepRule> rules(double first, double second) {
  const OptimizerOptions optimizer = sgd().optimizer;
  return {{first, optimizer}, {second, optimizer}};
}

void load_ones(TorchEngine& engine) {
  engine.get().load([](const WeightSlice&, std::int64_t, std::span<float> out) { std::ranges::fill(out, 1.0f); });
}

std::vector<float> read_at(TorchEngine& engine, const ParameterId& id) {
  std::vector<float> values(kElements);
  std::memcpy(values.data(), engine.address(id), values.size() * sizeof(float));
  return values;
}

// Forward and backward pass of all units.
void run_pass(TorchEngine& engine, float factor = 1) {
  engine.begin_call(Recorded::yes);
  for (std::size_t u = 0; u < kUnits; ++u) engine.use({u}, Recorded::yes, Visit::Direction::forward);
  engine.end_call();
  for (std::size_t u = kUnits; u-- > 0;) {
    engine.use({u}, Recorded::yes, Visit::Direction::backward);
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
      std::vector<float> gradient = read_at(engine, {u, i});
      for (float& value : gradient) value *= factor;
      engine.add_gradient({u, i}, reinterpret_cast<std::byte*>(gradient.data()));
    }
  }
}

float weight(TorchEngine& engine, const std::string& name) {
  float value = 0;
  engine.get().settled_io().read(name, kElements - 1, {&value, 1});
  return value;
}

void on_ranks(int ranks, const std::function<void(Runtime&)>& body) {
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) {
    Runtime runtime(small(), communicator);
    body(runtime);
    runtime.close();
  });
}

const std::vector<Placement>& placements() {
  static const std::vector<Placement> all = {
      {},
      {.params = {}, .optimizer = Shares::all_in(Place::host)},
      {.params = Shares::all_in(Place::host), .optimizer = {}},
      {.params = Shares::all_in(Place::host), .optimizer = Shares::all_in(Place::host)}};
  return all;
}

TEST(TorchEngine, StepsEachGroupByItsRuleAtEveryStageAndPlacement) {
  for (const int ranks : {1, 2, 3})
    for (int stage = 0; stage < 4; ++stage)
      for (const Placement& placement : placements())
        on_ranks(ranks, [&](Runtime& runtime) {
          TorchEngine engine(runtime, four_units(), sgd(stage, placement), AbsentMemory::guarded);
          load_ones(engine);
          const std::byte* const address = engine.address({2, 1});
          for (int step = 0; step < 3; ++step) {
            run_pass(engine);
            engine.step(rules(0.5, 0.25));
          }
          EXPECT_NEAR(weight(engine, "2.0"), 0.125, 1e-6) << ranks << " " << stage;
          EXPECT_NEAR(weight(engine, "3.1"), 0.421875, 1e-6) << ranks << " " << stage;
          EXPECT_EQ(engine.address({2, 1}), address);
        });
}

// What a parameter without a gradient is stepped by.
TEST(TorchEngine, WithoutARateAndWithBetasOfOneNothingOfAGroupChanges) {
  for (const OptimizerType type : {OptimizerType::adamw, OptimizerType::adam, OptimizerType::sgd})
    for (const Placement& placement : placements())
      on_ranks(2, [&](Runtime& runtime) {
        EngineOptions options = sgd(2, placement);
        options.optimizer = {.type = type, .momentum = 0.5f, .weight_decay = 0.1f};
        TorchEngine engine(runtime, four_units(), options, AbsentMemory::stale);
        load_ones(engine);
        const StepRule by_rate{0.25, options.optimizer};
        StepRule of_nothing{0, options.optimizer};
        of_nothing.optimizer.beta1 = of_nothing.optimizer.beta2 = of_nothing.optimizer.momentum = 1;
        of_nothing.optimizer.weight_decay = 0;
        const auto step = [&](const StepRule& second, std::size_t parameters) {
          engine.begin_call(Recorded::yes);
          std::vector<float> gradient(kElements);
          for (std::size_t u = kUnits; u-- > 0;)
            for (std::size_t i = 0; i < parameters; ++i) {
              std::ranges::fill(gradient, 1.0f);
              engine.add_gradient({u, i}, reinterpret_cast<std::byte*>(gradient.data()));
            }
          engine.step({by_rate, second});
        };
        step(of_nothing, 1);
        EXPECT_EQ(weight(engine, "1.1"), 1);
        step(by_rate, 2);
        const float first = weight(engine, "2.0"), second = weight(engine, "2.1");
        EXPECT_TRUE(std::isfinite(second));
        EXPECT_LT(second, 1);
        step(of_nothing, 1);
        EXPECT_EQ(weight(engine, "2.1"), second);
        EXPECT_LT(weight(engine, "2.0"), first);
      });
}

TEST(TorchEngine, RanksTellEachOtherBehindTheirGradients) {
  for (int stage = 0; stage < 4; ++stage)
    on_ranks(3, [&](Runtime& runtime) {
      TorchEngine engine(runtime, four_units(), sgd(stage), AbsentMemory::stale);
      load_ones(engine);
      for (int step = 0; step < 3; ++step) {
        run_pass(engine);
        EXPECT_TRUE(engine.is_on_any_rank(runtime.rank() == step));
        EXPECT_FALSE(engine.is_on_any_rank(false));
        engine.step(rules(0.5, 0.5));
      }
      EXPECT_EQ(weight(engine, "1.0"), 0.125) << stage;
    });
}

TEST(TorchEngine, SeveralPassesAddUpWhereTheyAreAnnounced) {
  on_ranks(2, [](Runtime& runtime) {
    TorchEngine engine(runtime, four_units(), sgd(2), AbsentMemory::stale);
    load_ones(engine);
    engine.set_passes(TorchEngine::Passes::several);
    run_pass(engine);
    engine.set_passes(TorchEngine::Passes::one);
    run_pass(engine, 2);
    EXPECT_NEAR(engine.clip_to(0), 3 * std::sqrt(double{2 * kUnits * kElements}), 1e-3);
    engine.step(rules(0.25, 0.25));
    EXPECT_NEAR(weight(engine, "0.0"), 0.25, 1e-6);
  });
}

TEST(TorchEngine, APassThatIsNotAnnouncedIsAnErrorWhereGradientsHaveBeenSent) {
  on_ranks(2, [](Runtime& runtime) {
    TorchEngine engine(runtime, four_units(), sgd(2), AbsentMemory::stale);
    load_ones(engine);
    run_pass(engine);
    EXPECT_TRUE(names(error_text([&] { run_pass(engine); }), "a second backward pass before optimizer.step()"));
    engine.drop_gradients();
    run_pass(engine);
    engine.step(rules(0.5, 0.5));
    EXPECT_NEAR(weight(engine, "1.1"), 0.5, 1e-6);
  });
}

TEST(TorchEngine, AStepBeforeAllMicroStepsIsAnErrorAndKeepsThem) {
  on_ranks(2, [](Runtime& runtime) {
    EngineOptions options = sgd(2);
    options.accumulation = 3;
    TorchEngine engine(runtime, four_units(), options, AbsentMemory::stale);
    load_ones(engine);
    run_pass(engine);
    EXPECT_TRUE(names(error_text([&] { engine.step(rules(0.25, 0.25)); }), "optimizer.step(): after 1 of the 3"));
    EXPECT_TRUE(names(error_text([&] { engine.clip_to(1); }), "grad_accum=3"));
    run_pass(engine);
    run_pass(engine);
    engine.step(rules(0.25, 0.25));
    EXPECT_NEAR(weight(engine, "0.0"), 0.25, 1e-6);
    run_pass(engine);
    EXPECT_TRUE(names(error_text([&] { engine.step(rules(0.25, 0.25)); }), "after 1 of the 3"));
    engine.drop_gradients();
    for (int pass = 0; pass < 3; ++pass) run_pass(engine);
    engine.step(rules(0.25, 0.25));
    EXPECT_NEAR(weight(engine, "0.0"), 0.0625, 1e-6);
  });
}

TEST(TorchEngine, GradientsOfALossThatTheCallerScaledAreDividedByTheScale) {
  on_ranks(2, [](Runtime& runtime) {
    TorchEngine engine(runtime, four_units(), sgd(2), AbsentMemory::stale);
    load_ones(engine);
    const double norm = std::sqrt(double{2 * kUnits * kElements});
    run_pass(engine, 1024);
    EXPECT_NEAR(engine.unscale(1024), norm, 1e-3);
    engine.step(rules(0.5, 0.5));
    EXPECT_EQ(weight(engine, "0.0"), 0.5);
    run_pass(engine, 256);
    EXPECT_NEAR(engine.unscale(256), norm / 2, 1e-3);
    EXPECT_NEAR(engine.clip_to(static_cast<float>(norm / 4)), norm / 2, 1e-3);
    engine.step(rules(0.5, 0.5));
    EXPECT_NEAR(weight(engine, "0.0"), 0.375, 1e-6);
    run_pass(engine, std::numeric_limits<float>::infinity());
    EXPECT_FALSE(std::isfinite(engine.unscale(1024)));
    engine.drop_gradients();
    run_pass(engine);
    engine.step(rules(1, 1));
    EXPECT_EQ(weight(engine, "0.0"), 0);
  });
}

// Each gradient is 1, times the loss scale and `factor`.
void run_half_pass(TorchEngine& engine, float factor = 1) {
  engine.begin_call(Recorded::yes);
  for (std::size_t u = kUnits; u-- > 0;)
    for (const std::size_t i : {std::size_t{1}, std::size_t{0}}) {
      std::vector<f16> gradient(kElements, from_float<f16>(factor * engine.loss_scale()));
      engine.add_gradient({u, i}, reinterpret_cast<std::byte*>(gradient.data()));
    }
}

TEST(TorchEngine, InHalfPrecisionAStepThatOverflowsIsSkippedAndLowersTheScale) {
  on_ranks(1, [](Runtime& runtime) {
    EngineOptions options = sgd();
    options.dtype = DType::f16;
    options.loss_scale = {.initial = 1024, .least = 512, .patience = 2};
    TorchEngine engine(runtime, four_units(), options, AbsentMemory::stale);
    load_ones(engine);
    EXPECT_EQ(engine.loss_scale(), 1024);
    run_half_pass(engine, 1024);
    EXPECT_TRUE(engine.step(rules(0.25, 0.25)).skipped);
    EXPECT_EQ(engine.loss_scale(), 512);
    EXPECT_EQ(weight(engine, "0.0"), 1);
    run_half_pass(engine, 1024);
    EXPECT_TRUE(names(error_text([&] { engine.step(rules(0.25, 0.25)); }), "even with a loss scale of 512"));
    for (int step = 0; step < 2; ++step) {
      run_half_pass(engine);
      EXPECT_NEAR(engine.clip_to(0), std::sqrt(double{2 * kUnits * kElements}), 1e-3);
      EXPECT_FALSE(engine.step(rules(0.25, 0.25)).skipped);
    }
    EXPECT_EQ(engine.loss_scale(), 1024);
    EXPECT_EQ(weight(engine, "3.1"), 0.5);
  });
}

TEST(TorchEngine, AStepWithoutGradientsChangesNothing) {
  on_ranks(1, [](Runtime& runtime) {
    TorchEngine engine(runtime, four_units(), sgd(), AbsentMemory::stale);
    load_ones(engine);
    engine.step(rules(0.5, 0.5));
    engine.begin_call(Recorded::yes);  // a forward pass that nobody goes back through
    engine.use({0}, Recorded::yes, Visit::Direction::forward);
    engine.step(rules(0.5, 0.5));
    EXPECT_EQ(weight(engine, "0.0"), 1);
    run_pass(engine);
    engine.step(rules(0.5, 0.5));
    EXPECT_EQ(weight(engine, "0.0"), 0.5);
  });
}

TEST(TorchEngine, KeepsNoMoreUnitsThanItPrefetches) {
  on_ranks(1, [](Runtime& runtime) {
    TorchEngine engine(runtime, four_units(), sgd(0, placements()[3]), AbsentMemory::guarded);
    load_ones(engine);
    for (int step = 0; step < 3; ++step) {
      run_pass(engine);
      engine.step(rules(0.5, 0.5));
    }
    EXPECT_LT(engine.slots(), kUnits);
    EXPECT_GE(engine.slots(), 1u);
  });
}

}  // namespace
}  // namespace zeepo
