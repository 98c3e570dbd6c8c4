// One data path: whatever a model does with its parameters, no stage changes a bit, and ranks together compute what one
// would.
#include <mutex>
#include <set>

#include "tests/support/errors.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

constexpr int kWorlds[] = {1, 2, 3, 4, 7};

std::string text_of(const ShardedRun& run) {
  return fmt::format("stage {}, {} ranks, {}, prefetch {}", run.options.stage, run.ranks, name_of(run.options.dtype),
                     run.options.prefetch_bytes);
}

// The run at stage 0, after all other stages gave the same bits.
template <class Model>
std::vector<ShardedResult> at_every_stage(ShardedRun run) {
  run.options.stage = 0;
  const auto reference = train_ranks<Model>(run);
  for (const int stage : {1, 2, 3}) {
    run.options.stage = stage;
    run.options.prefetch_bytes = stage == 2 ? 0 : std::int64_t{1} << 30;
    expect_same_bits(train_ranks<Model>(run), reference, text_of(run));
  }
  run.options.prefetch_bytes = 6000;  // some units ahead, not all
  expect_same_bits(train_ranks<Model>(run), reference, text_of(run));
  return reference;
}

template <class Model>
class Sharding : public ::testing::Test {};
using Models = ::testing::Types<Plain, Tiny, Tied, UsedByTwo, CalledAgain, Frozen, Unused, Branching, Outside, Deep>;
struct ModelNames {
  template <class Model>
  static std::string GetName(int i) {
    static const char* names[] = {"Plain",  "Tiny",   "Tied",      "UsedByTwo", "CalledAgain",
                                  "Frozen", "Unused", "Branching", "Outside",   "Deep"};
    return names[i];
  }
};
TYPED_TEST_SUITE(Sharding, Models, ModelNames);

TYPED_TEST(Sharding, NoStageChangesABit) {
  for (const int ranks : kWorlds)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::int64_t accumulation = dtype == DType::bf16 ? 2 : 1;  // tests/train has the other two
      at_every_stage<TypeParam>({.ranks = ranks, .options = {.dtype = dtype, .accumulation = accumulation}});
    }
}

TYPED_TEST(Sharding, RanksTogetherComputeWhatOneDoes) {
  for (const int ranks : {2, 3, 4, 7}) {
    ShardedRun run{.ranks = 1, .options = {.optimizer = kMomentumSgd}, .rows = ranks};
    const auto alone = train_ranks<TypeParam>(run);
    run = {.ranks = ranks, .options = {.stage = 3, .optimizer = kMomentumSgd}, .rows = 1};
    expect_near(train_ranks<TypeParam>(run)[0], alone[0], 1e-5, text_of(run));
  }
}

TYPED_TEST(Sharding, CheckpointedActivationsGiveTheSameBits) {
  ShardedRun run{.ranks = 3, .options = {.stage = 3}};
  const auto reference = train_ranks<TypeParam>(run);
  run.options.activation_checkpointing = true;
  expect_same_bits(train_ranks<TypeParam>(run), reference, text_of(run));
}

// How far a weight has moved, as names with the greatest change.
std::map<std::string, float> moved(const ShardedResult& result) {
  std::map<std::string, float> changes;
  for (const auto& [name, values] : result.weights) {
    const auto first = first_weights({name, {static_cast<std::int64_t>(values.size())}});
    for (std::size_t i = 0; i < values.size(); ++i)
      changes[name] = std::max(changes[name], std::abs(values[i] - first[i]));
  }
  return changes;
}

TEST(Shards, LeaveFrozenParametersAsTheyWere) {
  for (const int ranks : {1, 3, 7})
    for (const int stage : {0, 1, 2, 3})
      for (const auto& [name, change] : moved(train_ranks<Frozen>({.ranks = ranks, .options = {.stage = stage}})[0])) {
        const bool frozen = name.starts_with("first.") || name == "middle.weight";
        EXPECT_EQ(change == 0, frozen) << name << " at stage " << stage << " on " << ranks;
      }
}

// A parameter without a gradient decays all the same, and by decay alone.
TEST(Shards, DecayWhatAPassDoesNotUse) {
  for (const int ranks : {1, 3, 7})
    for (const int stage : {0, 1, 2, 3})
      for (const Decay decay : {Decay::all, Decay::matrices}) {
        const ShardedRun run{.ranks = ranks,
                             .options = {.stage = stage, .optimizer = {.weight_decay = 0.5f}, .decay = decay},
                             .steps = 1,
                             .lr = 0.1};
        const auto result = train_ranks<Unused>(run)[0];
        for (const std::string module : {"never", "either", "nowhere"})
          for (const std::string part : {".weight", ".bias"}) {
            const auto& after = result.weights.at(module + part);
            const auto before = first_weights({module + part, {static_cast<std::int64_t>(after.size())}});
            const float kept = decay == Decay::all || part == ".weight" ? 0.95f : 1;
            for (std::size_t i = 0; i < after.size(); ++i)
              ASSERT_NEAR(after[i], kept * before[i], 1e-6) << module << part << "[" << i << "] " << text_of(run);
          }
      }
}

TEST(Shards, StepAlikeByEveryOptimizer) {
  const OptimizerOptions optimizers[] = {kPlainSgd, kMomentumSgd, {}, {.type = OptimizerType::adam}};
  for (const int ranks : {2, 7})
    for (const auto& optimizer : optimizers)
      for (const Decay decay : {Decay::all, Decay::matrices}) {
        const float clip = decay == Decay::all ? 0.0f : 0.1f;
        const ShardedRun run{
            .ranks = ranks, .options = {.optimizer = optimizer, .decay = decay, .clip = clip}, .steps = 3};
        EXPECT_GT(at_every_stage<Tied>(run)[0].norms[0], 0.1f);  // so that clipping does something
      }
}

TEST(Shards, ClipByTheNormOfAllRanks) {
  const auto length = [](int ranks, int stage) {
    const ShardedRun run{
        .ranks = ranks, .options = {.stage = stage, .optimizer = kPlainSgd, .clip = 0.05f}, .steps = 1, .lr = 1};
    double squares = 0;
    const auto results = train_ranks<Plain>(run);
    for (const auto& [name, values] : results[0].weights) {
      const auto first = first_weights({name, {static_cast<std::int64_t>(values.size())}});
      for (std::size_t i = 0; i < values.size(); ++i) squares += std::pow(double(values[i]) - first[i], 2);
    }
    return std::sqrt(squares);
  };
  for (const int ranks : {1, 2, 7})
    for (const int stage : {0, 3}) EXPECT_NEAR(length(ranks, stage), 0.05, 1e-5) << ranks << " ranks, stage " << stage;
}

// Used outside of all visits that name it: what would be a lost gradient or an old weight is an error at every stage.
class Undeclared : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    const Tensor early = linear(x, weight_of(inner_));
    return cross_entropy(out_(add(early, inner_(x))), targets);
  }

 private:
  Module &inner_ = child<Linear>("inner", kIn, kIn), &out_ = child<Linear>("out", kIn, kOut);
};

TEST(Shards, MustBeOwnedOrBorrowedWhereTheyAreUsed) {
  for (const int stage : {0, 1, 2})
    EXPECT_TRUE(names(error_text([&] { train_ranks<Undeclared>({.ranks = 2, .options = {.stage = stage}}); }), "inner",
                      "own or borrow()"));
  EXPECT_TRUE(names(error_text([&] { train_ranks<Undeclared>({.ranks = 2, .options = {.stage = 3}}); }),
                    "weight: used while it has no memory"));
}

TEST(Units, OfMoreBlocksGiveTheSameBits) {
  for (const int ranks : {1, 2, 3, 7})
    for (const int stage : {0, 3})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        ShardedRun run{.ranks = ranks, .options = {.dtype = dtype, .stage = stage, .clip = 0}};
        const auto reference = train_ranks<Deep>(run);
        for (const std::int64_t blocks : {2, 3, 9}) {
          run.options.blocks_per_unit = blocks;
          const auto result = train_ranks<Deep>(run);
          const auto what = fmt::format("{} blocks a unit, {}", blocks, text_of(run));
          EXPECT_EQ(result[0].losses, reference[0].losses) << what;
          EXPECT_EQ(result[0].weights, reference[0].weights) << what;
          for (std::size_t i = 0; i < result[0].norms.size(); ++i)  // its sum is grouped by units
            EXPECT_NEAR(result[0].norms[i], reference[0].norms[i], 1e-6 * reference[0].norms[i]) << what;
        }
      }
}

TEST(ReduceLast, IsNearReduceEachAndTheSameAtBothStages) {
  for (const int ranks : {1, 2, 3, 7}) {
    ShardedRun run{.ranks = ranks, .options = {.optimizer = kMomentumSgd, .accumulation = 3}};
    const auto each = train_ranks<Tied>(run);
    run.options.reduce = Reduce::last;
    const auto last = train_ranks<Tied>(run);
    expect_near(last[0], each[0], 1e-5, text_of(run));
    EXPECT_EQ(3 * last[0].sent.reduce_scatter, each[0].sent.reduce_scatter);
    run.options.stage = 1;
    expect_same_bits(train_ranks<Tied>(run), last, text_of(run));
    for (const DType dtype : {DType::bf16, DType::f16}) {
      run.options.dtype = dtype;
      run.options.stage = 0;
      const auto narrow = train_ranks<Tied>(run);
      run.options.stage = 1;
      expect_same_bits(train_ranks<Tied>(run), narrow, text_of(run));
    }
    run.options.stage = 2;
    EXPECT_TRUE(names(error_text([&] { train_ranks<Tied>(run); }), "stage 2", "stage 0 or 1"));
  }
}

// An infinity in one rank's data: all ranks skip the step, halve the scale and go on as if it had not been.
TEST(Overflow, OnOneRankSkipsTheStepOnAll) {
  for (const int ranks : {1, 2, 3, 7})
    for (const std::int64_t accumulation : {1, 2}) {
      std::vector<ShardedResult> reference;
      for (const int stage : {0, 1, 2, 3}) {
        const ShardedRun run{.ranks = ranks,
                             .options = {.dtype = DType::f16,
                                         .stage = stage,
                                         .accumulation = accumulation,
                                         .loss_scale = {.initial = 256, .least = 1, .patience = 1000}},
                             .poisoned_rank = ranks - 1,
                             .poisoned_step = 2};
        const auto results = train_ranks<Plain>(run);  // compares the ranks
        EXPECT_EQ(results[0].skipped, (std::vector{false, false, true, false})) << text_of(run);
        EXPECT_EQ(results[0].scales, (std::vector<float>{256, 256, 256, 128})) << text_of(run);
        EXPECT_EQ(results[0].hashes[3], results[0].hashes[2]) << text_of(run);
        EXPECT_NE(results[0].hashes[4], results[0].hashes[3]) << text_of(run);
        if (stage == 0) reference = results;
        EXPECT_EQ(results[0].hashes, reference[0].hashes) << text_of(run);
      }
    }
}

TEST(Overflow, WithoutALossScaleIsAnErrorOnEveryRank) {
  for (const int stage : {0, 3}) {
    std::mutex mutex;
    std::set<std::string> texts;
    ThreadsWorld world(3);
    EXPECT_TRUE(names(error_text([&] {
                        run(world, [&](Communicator& communicator) {
                          try {
                            (void)train_rank<Plain>(
                                {.ranks = 3, .options = {.stage = stage}, .poisoned_rank = 1, .poisoned_step = 1},
                                communicator);
                          } catch (const Error& error) {
                            const std::lock_guard lock(mutex);
                            texts.insert(fmt::format("{} {}", communicator.rank(), error.what()));
                            throw;
                          }
                        });
                      }),
                      "infinite or not a number"));
    ASSERT_EQ(texts.size(), 3u);
    for (const auto& text : texts) EXPECT_TRUE(names(text, "infinite or not a number"));
  }
}

}  // namespace
}  // namespace zeepo
