// The host steps its part of what lives below a device that steps the rest: both give the bits of the resident run.
#include "zeepo/zero/host_stepper.h"

#include <numeric>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::int64_t kElements = 1000;

// Pieces of a few numbers, stepped by adding the gradient to the weight and counting in the state.
class Stepper : public testing::Test {
 protected:
  Stepper() {
    std::iota(grads_.begin(), grads_.end(), 0.0f);
    for (auto& weights : weights_) weights.assign(kElements, 0.5f);
  }
  HostStepper::Done step(HostStepper& stepper, std::size_t i, bool fails = false) {
    return stepper.run({.grads = view(grads_),
                        .param = view(weights_[i]),
                        .after = {},
                        .step =
                            [fails, this, i](Stream& host, const View& grads, const View& param) {
                              if (fails) throw Error("piece {} cannot be stepped", i);
                              EXPECT_EQ(host.backend(), Backend::cpu);
                              EXPECT_NE(grads.data, grads_.data());
                              for (std::int64_t j = 0; j < kElements; ++j)
                                param.as<float>()[j] += grads.as<float>()[j] + static_cast<float>(order_);
                              ++order_;
                            },
                        .gradients = {"gradients"},
                        .parameters = {"parameters"},
                        .state = {}});
  }
  static View view(std::vector<float>& values) { return {values.data(), DType::f32, {kElements}}; }

  Session session_{{.threads = 2, .device_bytes = 1 << 20, .lower = {.host_bytes = 1 << 20, .nvme_paths = {}}}};
  std::vector<float> grads_ = std::vector<float>(kElements);
  std::array<std::vector<float>, 7> weights_;
  int order_ = 0;
};

TEST_F(Stepper, DoesPiecesInOrderThroughFewBuffers) {
  const std::size_t bytes = kElements * sizeof(float);
  for (const int buffers : {1, 2, 7}) {
    for (auto& weights : weights_) weights.assign(kElements, 0.5f);
    order_ = 0;
    HostStepper stepper(session_.lower(), HostStepper::slot_bytes(bytes, bytes), buffers, nullptr);
    std::vector<HostStepper::Done> done;
    for (std::size_t i = 0; i < weights_.size(); ++i) done.push_back(step(stepper, i));
    for (auto& piece : done) piece.weights.wait();
    for (std::size_t i = 0; i < weights_.size(); ++i)
      for (std::size_t j = 0; j < kElements; ++j)
        ASSERT_EQ(weights_[i][j], 0.5f + static_cast<float>(j + i)) << i << " " << j << ", " << buffers << " buffers";
  }
  EXPECT_EQ(session_.lower().carried().to_host, 3 * 7 * 2 * static_cast<std::int64_t>(bytes));
  EXPECT_EQ(session_.lower().carried().to_device, 3 * 7 * static_cast<std::int64_t>(bytes));
  session_.check_empty();
}

TEST_F(Stepper, TellsWhoWaitsThatAStepFailed) {
  const std::size_t bytes = kElements * sizeof(float);
  HostStepper stepper(session_.lower(), HostStepper::slot_bytes(bytes, bytes), 2, nullptr);
  HostStepper::Done good = step(stepper, 0), bad = step(stepper, 1, true), later = step(stepper, 2);
  good.weights.wait();
  EXPECT_TRUE(names(error_text([&] { bad.weights.wait(); }), "piece 1"));
  EXPECT_TRUE(names(error_text([&] { later.stepped.wait(); }), "piece 1"));
  EXPECT_TRUE(names(error_text([&] { stepper.drain(); }), "piece 1"));
  EXPECT_EQ(weights_[2][0], 0.5f);
}

TEST(HostStepThreads, LeaveCoresToOthers) {
  EXPECT_EQ(host_step_threads(1), 1);
  EXPECT_EQ(host_step_threads(2), 1);
  EXPECT_EQ(host_step_threads(4), 3);
  EXPECT_EQ(host_step_threads(16), 14);
}

class HostBesideDevice : public testing::Test {
 protected:
  ShardedRun base(int ranks, DType dtype, std::int64_t accumulation) const {
    return clipped_run_in_tiers(ranks, dtype, accumulation, directory_.path());
  }
  static ShardedRun mixed(ShardedRun run, double share, const Shares& optimizer = {.host = 1},
                          const Shares& params = {}) {
    run.options.placement = {params, optimizer, Place::device};
    run.options.step_below_on = StepSide::device;
    run.options.host_share = share;
    run.options.host_pieces_under_way = 2;
    return run;
  }
  TestDirectory directory_;
};

TEST_F(HostBesideDevice, EveryShareGivesTheSameBits) {
  for (const int ranks : {1, 3})
    for (const std::int64_t accumulation : {1, 2}) {
      const ShardedRun run = base(ranks, DType::bf16, accumulation);
      const auto reference = train_ranks<Wide>(run);
      for (const double share : {0.3, 0.5, 1.0})
        expect_same_bits(train_ranks<Wide>(mixed(run, share)), reference, fmt::format("{} ranks, {}", ranks, share));
    }
}

TEST_F(HostBesideDevice, EveryPlacementGivesTheSameBits) {
  struct Case {
    Shares params, optimizer;
  };
  for (const int ranks : {1, 2}) {
    const ShardedRun run = base(ranks, DType::bf16, 1);
    const auto reference = train_ranks<Wide>(run);
    for (const auto& [params, optimizer] : {Case{{.host = 1}, {.host = 1}}, Case{{.nvme = 1}, {.host = 0.6}},
                                            Case{{.host = 0.5}, {.host = 0.5, .nvme = 0.3}}, Case{{.host = 1}, {}}})
      expect_same_bits(train_ranks<Wide>(mixed(run, 0.5, optimizer, params)), reference,
                       fmt::format("{} ranks, params {} {}, optimizer {} {}", ranks, params.host, params.nvme,
                                   optimizer.host, optimizer.nvme));
  }
}

TEST_F(HostBesideDevice, EveryStageGivesTheSameBits) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    ShardedRun run = base(2, dtype, 1);
    const auto reference = train_ranks<Wide>(run);
    for (const int stage : {0, 1, 2, 3})
      for (const std::int64_t prefetch : {0, 1 << 20}) {
        run.options.stage = stage;
        run.options.prefetch_bytes = prefetch;
        expect_same_bits(train_ranks<Wide>(mixed(run, 0.5)), reference, fmt::format("stage {}", stage));
      }
  }
}

TEST_F(HostBesideDevice, EveryRuleGivesTheSameBits) {
  for (const auto& optimizer :
       {OptimizerOptions{.type = OptimizerType::adam}, OptimizerOptions{.moments = MomentType::bf16, .seed = 3},
        OptimizerOptions{.moments = MomentType::eight_bit, .seed = 3},
        OptimizerOptions{.type = OptimizerType::sgd, .moments = MomentType::bf16, .seed = 3}, kPlainSgd,
        kMomentumSgd}) {
    ShardedRun run = base(1, DType::bf16, 1);
    run.options.optimizer = optimizer;
    run.options.decay = Decay::matrices;
    const auto reference = train_ranks<Wide>(run);
    expect_same_bits(
        train_ranks<Wide>(mixed(run, 0.5)), reference,
        fmt::format("type {}, moments {}", static_cast<int>(optimizer.type), static_cast<int>(optimizer.moments)));
  }
}

TEST_F(HostBesideDevice, EveryModelGivesTheSameBits) {
  const auto expect = [&]<class Model>(const Model*, const char* name) {
    const ShardedRun run = base(2, DType::bf16, 1);
    expect_same_bits(train_ranks<Model>(mixed(run, 0.5)), train_ranks<Model>(run), name);
  };
  expect(static_cast<Tied*>(nullptr), "tied");
  expect(static_cast<Branching*>(nullptr), "branching");
  expect(static_cast<Outside*>(nullptr), "outside");
}

TEST_F(HostBesideDevice, AnOverflowIsSkippedOnBothSides) {
  ShardedRun run = base(2, DType::f16, 1);
  run.poisoned_rank = 1;
  run.poisoned_step = 1;
  const auto reference = train_ranks<Wide>(run);
  EXPECT_TRUE(reference[0].skipped[1]);
  expect_same_bits(train_ranks<Wide>(mixed(run, 0.5)), reference, "half on the host");
}

TEST_F(HostBesideDevice, TheShareMayGrowAndShrinkBetweenSteps) {
  for (const int ranks : {1, 3}) {
    ShardedRun run = base(ranks, DType::bf16, 2);
    run.steps = 7;
    const auto reference = train_ranks<Wide>(run);
    run.depths = {{1 << 20, 2, 0.5}, {1 << 20, 2, 0.5}, {1 << 19, 1, 1}, {1 << 20, 2, 0.2}, {1 << 20, 2, 0}};
    expect_same_bits(train_ranks<Wide>(mixed(run, 0)), reference, fmt::format("{} ranks", ranks));
  }
}

TEST_F(HostBesideDevice, RanksMayHaveDifferentShares) {
  const ShardedRun run = base(2, DType::bf16, 1);
  for (const int stage : {0, 3}) {
    std::vector<ShardedResult> results(2);
    ThreadsWorld world(2);
    zeepo::run(world, [&](Communicator& communicator) {
      ShardedRun own = mixed(run, communicator.rank() == 0 ? 0.8 : 0.0);
      own.options.stage = stage;
      results[static_cast<std::size_t>(communicator.rank())] = train_rank<Wide>(own, communicator);
    });
    expect_same_bits(results, train_ranks<Wide>(run), fmt::format("stage {}", stage));
  }
}

TEST_F(HostBesideDevice, StateComesUpAheadOfTheFirstStep) {
  const ShardedRun run = mixed(base(1, DType::bf16, 1), 0);
  Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
  Wide model;
  ModelEngine engine(model, session.communicator(), run.options);
  engine.load(fill_weights);
  session.lower().drain();
  EXPECT_GT(session.lower().carried().to_device, 0);
}

// State goes up and down for what the device steps; gradients and weights down, and weights up, for what the host does.
TEST_F(HostBesideDevice, CarriesWhatEachSideNeeds) {
  const auto carried = [&](double share) {
    const ShardedRun run = mixed(base(1, DType::bf16, 1), share);
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
    Wide model;
    ModelEngine engine(model, session.communicator(), run.options);
    engine.load(fill_weights);
    LinkBytes before;
    for (int step = 0; step < 2; ++step) {
      before = session.lower().carried();
      engine.micro_step([&] { return loss_of(model, Rows(0, 5), DType::bf16, 0); });
      (void)engine.step(0.1);
      engine.settle();
    }
    const LinkBytes bytes = session.lower().carried() - before;
    const auto count = static_cast<double>(parameter_count(engine.units()));
    return std::pair(static_cast<double>(bytes.to_device) / count, static_cast<double>(bytes.to_host) / count);
  };
  const auto [up, down] = carried(0);
  EXPECT_NEAR(up, 10, 0.2);
  EXPECT_NEAR(down, 10, 0.2);
  const auto [host_up, host_down] = carried(1);
  EXPECT_NEAR(host_up, 2, 0.1);
  EXPECT_NEAR(host_down, 4, 0.1);
  const auto [mixed_up, mixed_down] = carried(0.5);
  EXPECT_GT(mixed_up, 3);
  EXPECT_LT(mixed_up, 9);
}

// Pieces that the host was given are stepped once, whatever becomes of the pass that follows.
TEST_F(HostBesideDevice, OutlivesAPassThatThrows) {
  const auto train = [&](bool resident, bool breaks) {
    const ShardedRun run = resident ? base(1, DType::f32, 1) : mixed(base(1, DType::f32, 1), 0.5);
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
    Wide model;
    ModelEngine engine(model, session.communicator(), run.options);
    engine.load(fill_weights);
    const auto pass = [&] { engine.micro_step([&] { return loss_of(model, Rows(0, 5), DType::f32, 0); }); };
    std::map<std::string, std::vector<float>> weights;
    pass();
    (void)engine.step(0.05);
    model.breaks = breaks;
    if (breaks) {
      EXPECT_TRUE(names(error_text(pass), "broken backward"));
    }
    model.breaks = false;
    pass();
    (void)engine.step(0.05);
    read_all(engine, weights);
    return weights;
  };
  const auto reference = train(true, false);
  EXPECT_EQ(train(false, false), reference);
  EXPECT_EQ(train(false, true), reference);
}

TEST_F(HostBesideDevice, WhatCannotBeMixedIsAnError) {
  const auto made = [&](const ShardedRun& run) {
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
    Wide model;
    const ModelEngine engine(model, session.communicator(), run.options);
  };
  ShardedRun run = mixed(base(1, DType::f32, 1), 0.5);
  run.options.clip = 0;
  run.options.step_phase = StepPhase::in_backward;
  EXPECT_TRUE(names(error_text([&] { made(run); }), "0.5"));
  EXPECT_TRUE(names(error_text([&] { made(mixed(base(1, DType::f32, 1), 1.5)); }), "1.5"));
  run = mixed(base(1, DType::f32, 1), 0.5);
  run.options.host_pieces_under_way = 0;
  EXPECT_TRUE(names(error_text([&] { made(run); }), "0 pieces"));
  // The device has slots for what the first share leaves it.
  for (const double other : {0.4, 0.6}) {
    run = mixed(base(1, DType::f32, 1), 0.5);
    run.depths = {{1 << 20, 2, other}};
    EXPECT_TRUE(names(error_text([&] { train_ranks<Wide>(run); }), fmt::format("{}", other), "0.5"));
  }
  run = mixed(base(1, DType::f32, 1), 0);
  run.depths = {{1 << 20, 2, -0.4}};
  EXPECT_TRUE(names(error_text([&] { train_ranks<Wide>(run); }), "-0.4"));
}

}  // namespace
}  // namespace zeepo
