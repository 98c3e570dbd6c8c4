// Weights come in shard by shard and go out whole, the same from every rank.
#include <mutex>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

constexpr int kWeightWorlds[] = {1, 2, 3, 4, 7};

template <class Model>
void expect_each_element_asked_for_once(int ranks, int stage) {
  std::mutex mutex;
  std::map<std::string, std::vector<int>> asked;  // how often each element was
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
    Model model;
    ModelEngine engine(model, communicator, {.stage = stage});
    engine.load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      const std::lock_guard lock(mutex);
      auto& counts = asked[slice.name];
      counts.resize(static_cast<std::size_t>(slice.shape.elements()));
      for (std::size_t i = 0; i < out.size(); ++i) ++counts.at(static_cast<std::size_t>(begin) + i);
      elements[static_cast<std::size_t>(communicator.rank())] += static_cast<std::int64_t>(out.size());
      fill_weights(slice, begin, out);
    });
    std::int64_t own = 0;
    for (const auto& unit : engine.units().units) own += shard_elements(unit.elements, ranks, Unit::kAlignment);
    EXPECT_LE(elements[static_cast<std::size_t>(communicator.rank())], own);
    const std::lock_guard lock(mutex);
    EXPECT_LE(asked.size(), engine.slices().size());
    for (const auto& slice : engine.slices()) asked[slice.name].resize(asked[slice.name].size());  // none is missing
  });
  for (const auto& [name, counts] : asked) {
    EXPECT_FALSE(counts.empty()) << name;
    for (std::size_t i = 0; i < counts.size(); ++i)
      ASSERT_EQ(counts[i], 1) << name << "[" << i << "], stage " << stage << " on " << ranks;
  }
}

TEST(ShardedWeights, EachElementIsReadByOneRankOnce) {
  for (const int ranks : kWeightWorlds)
    for (const int stage : {0, 1, 2, 3}) {
      expect_each_element_asked_for_once<Tied>(ranks, stage);
      expect_each_element_asked_for_once<Outside>(ranks, stage);
      expect_each_element_asked_for_once<Tiny>(ranks, stage);
    }
}

TEST(ShardedWeights, AreReadAndHashedAlikeFromEveryRank) {
  std::string expected;
  for (const int ranks : kWeightWorlds)
    for (const int stage : {0, 1, 2, 3})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        ThreadsWorld world(ranks);
        std::vector<std::string> hashes(static_cast<std::size_t>(ranks));
        run(world, [&](Communicator& communicator) {
          Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
          Deep model;
          ModelEngine engine(model, communicator, {.dtype = dtype, .stage = stage});
          engine.load(fill_weights);
          for (const auto& slice : engine.slices()) {
            const auto given = first_weights(slice);
            std::vector<float> whole(given.size()), middle(given.size() / 2);
            engine.read(slice.name, 0, whole);
            EXPECT_EQ(bits(whole), bits(given)) << slice.name << " on rank " << communicator.rank();
            engine.read(slice.name, 1, middle);  // over the border of shards
            EXPECT_EQ(bits(middle), bits({given.begin() + 1, given.begin() + 1 + std::ssize(middle)})) << slice.name;
          }
          hashes[static_cast<std::size_t>(communicator.rank())] = engine.weights_hash();
        });
        if (expected.empty()) expected = hashes[0];
        for (const auto& hash : hashes) EXPECT_EQ(hash, expected) << "stage " << stage << " on " << ranks;
      }
}

// Loading in the middle of the work, while stepped parameters are on their way, is a fresh start: moments and the count
// of steps too, wherever they live.
TEST(ShardedWeights, CanBeLoadedAnewAfterAStep) {
  for (const int stage : {0, 1, 2, 3})
    for (const double below : {0.0, 0.5})
      for (const MomentType moments : {MomentType::fp32, MomentType::eight_bit}) {
        ThreadsWorld world(3);
        run(world, [&](Communicator& communicator) {
          Session session({.threads = 1, .device_bytes = 16 << 20, .lower = {.host_bytes = 16 << 20, .nvme_paths = {}}},
                          communicator);
          Wide model;
          EngineOptions options{.stage = stage, .optimizer = {.moments = moments}};
          options.placement.optimizer.host = below;
          options.piece_elements = EngineOptions::kPieceAlignment;
          ModelEngine engine(model, communicator, options);
          const auto hashes = [&] {
            engine.load(fill_weights);
            std::vector<std::string> result{engine.weights_hash()};
            for (int step = 0; step < 3; ++step) {
              engine.micro_step([&] { return loss_of(model, Rows(communicator.rank(), 2), DType::f32, step); });
              (void)engine.step(0.1);
              if (step < 2) result.push_back(engine.weights_hash());
            }
            return result;
          };
          const auto first = hashes();
          EXPECT_EQ(hashes(), first) << "stage " << stage << ", below " << below;
        });
      }
}

// Small weights side by side.
class ManyNorms : public Module {
 public:
  ManyNorms() {
    mark_unit();
    for (int i = 0; i < 20; ++i) (void)child<LayerNorm>(fmt::format("norm{}", i), 1000);
  }
};

TEST(ShardedWeights, AreNotLoadedInTheMiddleOfAStep) {
  Session session({.threads = 1, .device_bytes = 16 << 20});
  Wide model;
  ModelEngine engine(model, session.communicator(), {});
  engine.load(fill_weights);
  engine.micro_step([&] { return loss_of(model, Rows(0, 2), DType::f32, 0); });
  EXPECT_TRUE(names(error_text([&] { engine.load(fill_weights); }), "1 of 1 micro-steps"));
  (void)engine.step(0.1);
  engine.load(fill_weights);
}

TEST(ShardedWeights, InFilesAreReadOnce) {
  const TestDirectory directory;
  Session session({.threads = 1,
                   .device_bytes = 16 << 20,
                   .lower = {.host_bytes = 64 << 20, .nvme_paths = {directory.path()}, .nvme_bytes = 16 << 20}});
  ManyNorms model;
  EngineOptions options{.use = Use::infer};
  options.placement.params.nvme = 1;
  ModelEngine engine(model, session.communicator(), options);
  engine.load(fill_weights);
  const std::int64_t before = session.lower().carried().read;
  for (const auto& slice : engine.slices()) {
    std::vector<float> values(static_cast<std::size_t>(slice.shape.elements()));
    engine.read(slice.name, 0, values);
    EXPECT_EQ(values, first_weights(slice)) << slice.name;
  }
  const std::int64_t bytes = 4 * engine.units().units[0].elements;
  EXPECT_EQ(session.lower().carried().read - before, SwapFile::round_up(bytes));
}

}  // namespace
}  // namespace zeepo
