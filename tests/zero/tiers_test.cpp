// Where states live changes nothing of what is computed: every placement gives the bits of the resident run.
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/base/timeline.h"

namespace zeepo {
namespace {

struct Case {
  Shares params, optimizer;
  Place activations;
};

std::string describe(const Case& c) {
  return fmt::format("params {} {}, optimizer {} {}, activations {}", c.params.host, c.params.nvme, c.optimizer.host,
                     c.optimizer.nvme, name_of(c.activations));
}

class Tiers : public testing::Test {
 protected:
  ShardedRun base(int ranks, DType dtype, std::int64_t accumulation) const {
    ShardedRun run = clipped_run_in_tiers(ranks, dtype, accumulation, directory_.path());
    run.options.activation_checkpointing = true;
    return run;
  }
  static ShardedRun placed(ShardedRun run, const Case& c) {
    run.options.placement = {c.params, c.optimizer, c.activations, run.options.placement.cache};
    return run;
  }

  TestDirectory directory_;
};

TEST_F(Tiers, EveryPlacementGivesTheSameBits) {
  for (const int ranks : {1, 3}) {
    const ShardedRun run = base(ranks, DType::bf16, 2);
    const auto reference = train_ranks<Wide>(run);
    for (const Place params : kPlaces)
      for (const Place optimizer : kPlaces)
        for (const Place activations : kPlaces) {
          const Case c{Shares::all_in(params), Shares::all_in(optimizer), activations};
          expect_same_bits(train_ranks<Wide>(placed(run, c)), reference,
                           fmt::format("{} ranks, {}", ranks, describe(c)));
        }
  }
}

TEST_F(Tiers, DepthsMayChangeBetweenSteps) {
  const std::vector<Case> cases{{Shares::all_in(Place::host), Shares::all_in(Place::nvme), Place::device},
                                {{.host = 0.3, .nvme = 0.3}, {.host = 0.2, .nvme = 0.5}, Place::host}};
  for (const int ranks : {1, 3}) {
    ShardedRun run = base(ranks, DType::bf16, 2);
    run.steps = 6;
    const auto reference = train_ranks<Wide>(run);
    run.options.pieces_under_way = 4;
    run.depths = {{2 << 20, 1}, {1 << 19, 4}, {4 << 20, 3}, {1, 2}};
    expect_same_bits(train_ranks<Wide>(run), reference, fmt::format("{} ranks, resident", ranks));
    for (const Case& c : cases)
      expect_same_bits(train_ranks<Wide>(placed(run, c)), reference, fmt::format("{} ranks, {}", ranks, describe(c)));
  }
}

TEST_F(Tiers, EveryCachePolicyGivesTheSameBits) {
  for (const int ranks : {1, 3})
    for (const std::int64_t prefetch : {0, 1 << 19, 4 << 20}) {
      ShardedRun run = base(ranks, DType::bf16, 2);
      run.options.prefetch_bytes = prefetch;
      const auto reference = train_ranks<Wide>(run);
      run.options.placement.cache = CachePolicy::lru;
      for (const Shares& params : {Shares{.host = 0.5}, Shares{.host = 0.1, .nvme = 0.2}, Shares{.host = 1}})
        for (const Shares& optimizer : {Shares{}, Shares{.host = 0.5, .nvme = 0.5}})
          expect_same_bits(train_ranks<Wide>(placed(run, {params, optimizer, Place::device})), reference,
                           fmt::format("{} ranks, prefetch {}", ranks, prefetch));
    }
}

TEST_F(Tiers, BuffersOfFilesAreRegisteredWithTheKernel) {
  const ShardedRun run = placed(base(1, DType::bf16, 1), {{}, Shares::all_in(Place::nvme), Place::device});
  Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
  EXPECT_TRUE(names(session.lower().description(), "1 file under"));
  Wide model;
  const ModelEngine engine(model, session.communicator(), run.options);
  const std::string text = session.lower().description();
  const bool uring = text.find("io_uring,") != std::string::npos;
  // Two pieces of the optimizer's state and four buffers of 256 KiB.
  EXPECT_TRUE(names(text, uring ? "MiB of memory" : "threads")) << text;
  EXPECT_EQ(text.find("no memory registered"), std::string::npos) << text;
}

TEST_F(Tiers, OverlapIsNotTurnedOffInARun) {
  ShardedRun run = base(1, DType::bf16, 1);
  run.depths = {{0, 2}};
  EXPECT_TRUE(names(error_text([&] { train_ranks<Wide>(run); }), "overlap"));
}

TEST_F(Tiers, StatesMayStraddleThem) {
  const std::vector<Case> cases{{{.host = 0.5}, {.host = 0.4, .nvme = 0.3}, Place::device},
                                {{.host = 0.3, .nvme = 0.3}, {.nvme = 0.5}, Place::host},
                                {{.nvme = 0.5}, {.host = 0.7}, Place::nvme}};
  for (const int ranks : {1, 2})
    for (const DType dtype : {DType::f32, DType::f16}) {
      const ShardedRun run = base(ranks, dtype, 1);
      const auto reference = train_ranks<Wide>(run);
      for (const Case& c : cases)
        expect_same_bits(train_ranks<Wide>(placed(run, c)), reference, fmt::format("{} ranks, {}", ranks, describe(c)));
    }
}

// The device steps what comes up to it, as it does on a GPU.
TEST_F(Tiers, TheDeviceMayStepWhatLivesBelow) {
  const std::vector<Case> cases{{{}, {.host = 1}, Place::device},
                                {{}, {.nvme = 1}, Place::device},
                                {{.host = 1}, {}, Place::device},
                                {{.nvme = 1}, {.host = 0.6}, Place::host},
                                {{.host = 0.5}, {.host = 0.4, .nvme = 0.3}, Place::device}};
  for (const int ranks : {1, 3})
    for (const std::int64_t accumulation : {1, 2}) {
      ShardedRun run = base(ranks, DType::bf16, accumulation);
      const auto reference = train_ranks<Wide>(run);
      run.options.step_below_on = StepSide::device;
      for (const Case& c : cases)
        expect_same_bits(train_ranks<Wide>(placed(run, c)), reference, fmt::format("{} ranks, {}", ranks, describe(c)));
    }
}

TEST_F(Tiers, EveryStageGivesTheSameBits) {
  ShardedRun run = base(2, DType::f32, 2);
  const auto reference = train_ranks<Wide>(run);
  const Case cases[] = {
      {{}, {.host = 1}, Place::device}, {{.nvme = 1}, {}, Place::device}, {{}, {.nvme = 0.5}, Place::host}};
  for (const int stage : {0, 1, 2})
    for (const Case& c : cases) {
      run.options.stage = stage;
      expect_same_bits(train_ranks<Wide>(placed(run, c)), reference, fmt::format("stage {}, {}", stage, describe(c)));
    }
}

TEST_F(Tiers, AnOverflowIsSkippedBelowTheDeviceToo) {
  ShardedRun run = base(2, DType::f16, 1);
  run.poisoned_rank = 1;
  run.poisoned_step = 1;
  const auto reference = train_ranks<Wide>(run);
  EXPECT_TRUE(reference[0].skipped[1]);
  for (const Place place : {Place::host, Place::nvme})
    expect_same_bits(train_ranks<Wide>(placed(run, {Shares::all_in(place), Shares::all_in(place), place})), reference,
                     std::string(name_of(place)));
}

TEST_F(Tiers, SgdStepsBelowTheDevice) {
  for (const DType dtype : {DType::bf16, DType::f32})  // plain, in fp32: there is no state
    for (const auto& optimizer : {kPlainSgd, kMomentumSgd}) {
      ShardedRun run = base(1, dtype, 1);
      run.options.optimizer = optimizer;
      const auto reference = train_ranks<Wide>(run);
      for (const Place place : {Place::host, Place::nvme})
        expect_same_bits(train_ranks<Wide>(placed(run, {{}, Shares::all_in(place), Place::device})), reference,
                         std::string(name_of(place)));
    }
}

const OptimizerOptions kNarrow[] = {{.moments = MomentType::bf16, .seed = 3},
                                    {.moments = MomentType::eight_bit, .seed = 3},
                                    {.type = OptimizerType::adam, .moments = MomentType::eight_bit, .seed = 3},
                                    {.type = OptimizerType::sgd, .moments = MomentType::bf16, .seed = 3}};

// Narrow moments are rounded by chance, and chance is by the weight's place in the model.
TEST_F(Tiers, NarrowMomentsGiveTheSameBitsEverywhere) {
  const std::vector<Case> cases{{{}, {.host = 1}, Place::device},
                                {{}, {.nvme = 1}, Place::device},
                                {{.nvme = 1}, {.host = 0.4, .nvme = 0.3}, Place::device},
                                {{.host = 0.5}, {}, Place::host}};
  for (const auto& optimizer : kNarrow)
    for (const int ranks : {1, 3}) {
      ShardedRun run = base(ranks, DType::bf16, 1);
      run.options.optimizer = optimizer;
      const auto reference = train_ranks<Wide>(run);
      const auto what = [&](const Case& c) {
        return fmt::format("moments {}, {} ranks, {}", static_cast<int>(optimizer.moments), ranks, describe(c));
      };
      for (const Case& c : cases) {
        run.options.step_below_on = StepSide::host;
        expect_same_bits(train_ranks<Wide>(placed(run, c)), reference, what(c));
        run.options.step_below_on = StepSide::device;
        expect_same_bits(train_ranks<Wide>(placed(run, c)), reference, what(c) + ", on the device");
      }
      run.options.step_below_on = StepSide::host;
      run.options.decay = Decay::matrices;
      const auto decaying = train_ranks<Wide>(run);
      for (const int stage : {0, 1, 2}) {
        run.options.stage = stage;
        expect_same_bits(train_ranks<Wide>(run), decaying, fmt::format("stage {}", stage));
      }
    }
}

// With one step's gradients at hand the seed alone decides what is kept of the moments.
TEST_F(Tiers, TheSeedDecidesTheRounding) {
  ShardedRun run = base(1, DType::f32, 1);
  run.options.optimizer = kNarrow[0];
  const auto one = train_ranks<Wide>(run), same = train_ranks<Wide>(run);
  run.options.optimizer.seed = 4;
  const auto other = train_ranks<Wide>(run);
  expect_same_bits(same, one, "the same seed");
  EXPECT_EQ(other[0].hashes[1], one[0].hashes[1]) << "the first step uses moments as computed";
  EXPECT_NE(other[0].hashes[2], one[0].hashes[2]);
}

TEST_F(Tiers, NarrowMomentsTakeTheirBytesInEveryTier) {
  struct Expected {
    MomentType moments;
    double bytes;  // a weight: two moments, and the int16 remainder of a bf16 weight
  };
  for (const auto& [moments, bytes] : {Expected{MomentType::fp32, 10}, Expected{MomentType::bf16, 6},
                                       Expected{MomentType::eight_bit, 2 + 2 * (1 + 1.0 / kMomentBlock)}})
    for (const Place place : kPlaces) {
      Session session({.threads = 1, .device_bytes = 64 << 20, .lower = base(1, DType::bf16, 1).lower});
      Wide model;
      EngineOptions options = base(1, DType::bf16, 1).options;
      options.optimizer.moments = moments;
      options.placement = {Shares::all_in(place), Shares::all_in(place), Place::device};
      ModelEngine engine(model, session.communicator(), options);
      engine.load(fill_weights);
      engine.micro_step([&] { return loss_of(model, Rows(0, 5), DType::bf16, 0); });
      (void)engine.step(0.1);
      engine.settle();
      const Tier& tier = place == Place::device ? session.memory() : session.lower().at(place);
      const auto expected = bytes * static_cast<double>(parameter_count(engine.units()));
      const double rounding = place == Place::nvme ? 5.0 * SwapFile::kPageBytes : 0.01 * expected;
      EXPECT_NEAR(static_cast<double>(tier.peak()[Kind::optimizer]), expected, rounding)
          << name_of(place) << " " << static_cast<int>(moments);
    }
}

TEST_F(Tiers, EightBitMomentumIsAnError) {
  Session session({.threads = 1, .device_bytes = 64 << 20});
  Wide model;
  const EngineOptions options{.optimizer = {.type = OptimizerType::sgd, .moments = MomentType::eight_bit}};
  EXPECT_TRUE(names(error_text([&] { ModelEngine(model, session.communicator(), options); }), "--moments 8bit"));
}

// The device keeps what it uses for the moment; the rest lies where it was told to.
TEST_F(Tiers, StatesAreCountedWhereTheyLive) {
  Session session({.threads = 1, .device_bytes = 64 << 20, .lower = base(1, DType::bf16, 1).lower});
  Wide model;
  EngineOptions options = base(1, DType::bf16, 1).options;
  options.placement = {Shares::all_in(Place::host), Shares::all_in(Place::nvme), Place::host};
  {
    ModelEngine engine(model, session.communicator(), options);
    engine.load(fill_weights);
    const std::int64_t parameters = parameter_count(engine.units());
    EXPECT_NEAR(session.lower().host().current()[Kind::params], 2 * parameters, 0.01 * 2 * parameters);
    EXPECT_NEAR(session.lower().nvme()->current()[Kind::optimizer], 10 * parameters, 0.01 * 10 * parameters);
    EXPECT_NEAR(session.lower().nvme()->current()[Kind::grads], 2 * parameters, 0.01 * 2 * parameters);
    EXPECT_EQ(session.memory().current()[Kind::optimizer], 0);
    EXPECT_EQ(session.memory().current()[Kind::grads], 0);
    engine.micro_step([&] { return loss_of(model, Rows(0, 5), DType::bf16, 0); });
    (void)engine.step(0.1);
    EXPECT_GT(session.lower().host().peak()[Kind::activations], 0);
    EXPECT_EQ(session.lower().host().current()[Kind::activations], 0);
  }
  // The buffers between device and files are the session's.
  EXPECT_EQ(session.lower().host().current().total, 4 * base(1, DType::bf16, 1).lower.staging_bytes);
  EXPECT_EQ(session.lower().nvme()->current().total, 0);
  EXPECT_EQ(session.memory().current().total, 0);
}

// What a step sends up travels under the compute of the unit before.
TEST_F(Tiers, TheStepRunsAUnitAheadOfTheForwardPass) {
  Timeline timeline;
  Session session(
      {.threads = 1, .device_bytes = 64 << 20, .lower = base(1, DType::bf16, 1).lower, .timeline = &timeline});
  Wide model;
  for (const Place place : {Place::host, Place::nvme}) {
    EngineOptions options = base(1, DType::bf16, 1).options;
    options.placement = {{}, Shares::all_in(place), Place::device};
    ModelEngine engine(model, session.communicator(), options);
    engine.load(fill_weights);
    const auto micro_step = [&] { engine.micro_step([&] { return loss_of(model, Rows(0, 5), DType::bf16, 0); }); };
    micro_step();
    (void)engine.step(0.1);
    timeline.begin_step(place == Place::host ? 1 : 2);
    micro_step();
    std::map<std::string, double> start;  // of the first span of each name
    for (const auto& event : nlohmann::json::parse("[" + timeline.events(0) + "]"))
      if (event.at("ph") == "X" && event.at("args").at("step") == timeline.steps().second)
        start.emplace(event.at("name"), event.at("ts"));
    EXPECT_LT(start.at("step second"), start.at("forward first")) << name_of(place);
    EXPECT_LT(start.at("forward first"), start.at("step sometimes")) << name_of(place);
    EXPECT_LT(start.at("step sometimes"), start.at("forward second")) << name_of(place);
    (void)engine.step(0.1);
  }
}

TEST_F(Tiers, NothingBelowTheDeviceIsAnError) {
  Session session({.threads = 1, .device_bytes = 64 << 20});
  Wide model;
  EngineOptions options;
  options.placement.params = Shares::all_in(Place::nvme);
  EXPECT_TRUE(names(error_text([&] { ModelEngine(model, session.communicator(), options); }), "--nvme-path"));
}

}  // namespace
}  // namespace zeepo
