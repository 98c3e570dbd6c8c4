// The same micro-batches give the same losses, norms and weights to the bit on any number of ranks, at every stage and
// placement. A sample of the grid, drawn anew in every run; ZEEPO_TEST_SEED repeats one.
#include "tests/support/drawn.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

constexpr std::int64_t kBatches = 12;

class AnyRanks : public Drawn {
 protected:
  // What changes bits, the same for all runs that are compared.
  EngineOptions rule() {
    EngineOptions options{.dtype = one_of<DType>({DType::f32, DType::bf16, DType::f16})};
    options.clip = one_of<float>({0.0f, 0.3f, 100.0f});
    options.decay = one_of<Decay>({Decay::all, Decay::matrices});
    options.optimizer.moments = one_of<MomentType>({MomentType::fp32, MomentType::bf16, MomentType::eight_bit});
    options.loss_scale = {.initial = 128};
    return options;
  }
  // What does not.
  ShardedRun arranged(const EngineOptions& rule) {
    const int ranks = one_of<int>({1, 2, 3, 4});
    EngineOptions options = rule;
    options.accumulation = kBatches / ranks;
    options.stage = one_of<int>({0, 1, 2, 3});
    options.prefetch_bytes = one_of<std::int64_t>({0, 1 << 10, 1 << 20});
    const auto shares = [&] { return one_of<Shares>({{}, {.host = 1}, {.nvme = 1}, {.host = 0.4, .nvme = 0.3}}); };
    options.placement.params = shares();
    options.placement.optimizer = shares();
    options.placement.activations = one_of<Place>({Place::device, Place::host});
    options.placement.cache = one_of<CachePolicy>({CachePolicy::fixed, CachePolicy::lru});
    options.step_below_on = one_of<StepSide>({StepSide::host, StepSide::device});
    if (options.clip == 0 && options.dtype != DType::f16)
      options.step_phase = one_of<StepPhase>({StepPhase::after_backward, StepPhase::in_backward});
    ShardedRun run = run_in_tiers(ranks, options, files_.path());
    run.steps = 2;
    run.rows = 3;
    run.infers = false;
    return run;
  }

  const TestDirectory files_;
};

std::string described(const ShardedRun& run) {
  const EngineOptions& o = run.options;
  return fmt::format("{} ranks, stage {}, {}, clip {}, params {}/{}, optimizer {}/{}, step on {}, prefetch {}",
                     run.ranks, o.stage, name_of(o.dtype), o.clip, o.placement.params.host, o.placement.params.nvme,
                     o.placement.optimizer.host, o.placement.optimizer.nvme,
                     o.step_below_on == StepSide::host ? "host" : "device", o.prefetch_bytes);
}

TEST_F(AnyRanks, GiveTheSameBits) {
  for (int round = 0; round < 12; ++round) {
    const EngineOptions shared = rule();
    ShardedRun plain{.ranks = 1, .options = shared};
    plain.options.accumulation = kBatches;
    plain.rows = 3;
    plain.steps = 2;
    plain.infers = false;
    plain.device_bytes = 64 << 20;
    const auto reference = train_ranks<Wide>(plain);
    for (int i = 0; i < 3; ++i) {
      const ShardedRun other = arranged(shared);
      const auto result = train_ranks<Wide>(other);
      EXPECT_EQ(bits(result[0].losses), bits(reference[0].losses)) << described(other);
      EXPECT_EQ(bits(result[0].norms), bits(reference[0].norms)) << described(other);
      EXPECT_EQ(result[0].hashes, reference[0].hashes) << described(other);
    }
  }
}

}  // namespace
}  // namespace zeepo
