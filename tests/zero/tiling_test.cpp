// Layers in tiles within units: whatever a model does with its modules, results and weights are those of whole layers.
#include "tests/support/errors.h"
#include "tests/zero/sharded_models.h"

namespace zeepo {
namespace {

template <class Model>
class InTiles : public Model {
 public:
  InTiles() { tile_linears(*this, 4); }
};

// One block several times in a pass.
class Recurrent : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(head_(again_(gelu(again_(again_(x))))), targets);
  }

 private:
  Module &again_ = child<Residual>("again"), &head_ = child<Linear>("head", kIn, kOut);
};

// Enough rows that sums over tiles are exact; no clipping, for the norm is summed by unit.
template <class Model>
void expect_bits_of_whole_layers(const char* what) {
  for (const int ranks : {1, 3})
    for (const std::int64_t accumulation : {1, 2}) {
      ShardedRun run{.ranks = ranks, .rows = 9, .infers = false};
      run.options = {.accumulation = accumulation, .clip = 0};
      const auto whole = train_ranks<Model>(run);
      for (const int stage : {0, 1, 2, 3})
        for (const bool checkpointing : {false, true})
          for (const std::int64_t prefetch : {0, 256, 1 << 20}) {
            run.options.stage = stage;
            run.options.activation_checkpointing = checkpointing;
            run.options.prefetch_bytes = prefetch;
            const auto tiled = train_ranks<InTiles<Model>>(run);
            const auto setting = fmt::format("{}: stage {}, checkpointing {}, prefetch {}, {} ranks, {} micro-steps",
                                             what, stage, checkpointing, prefetch, ranks, accumulation);
            EXPECT_EQ(bits(tiled[0].losses), bits(whole[0].losses)) << setting;
            EXPECT_EQ(tiled[0].hashes, whole[0].hashes) << setting;
            EXPECT_EQ(tiled[0].weights, whole[0].weights) << setting;
          }
    }
}

TEST(Tiles, OfUnmarkedLayers) { expect_bits_of_whole_layers<Plain>("plain"); }
TEST(Tiles, OfABorrowedWeightAreNotMade) { expect_bits_of_whole_layers<Tied>("tied"); }
TEST(Tiles, OfAModuleCalledAgain) { expect_bits_of_whole_layers<CalledAgain>("called again"); }
TEST(Tiles, OfFrozenWeights) { expect_bits_of_whole_layers<Frozen>("frozen"); }
TEST(Tiles, OfModulesThatNoPassCalls) { expect_bits_of_whole_layers<Unused>("unused"); }
TEST(Tiles, OfBranches) { expect_bits_of_whole_layers<Branching>("branching"); }
TEST(Tiles, OfBlocksAndALayerOutsideOfAllUnits) { expect_bits_of_whole_layers<Deep>("deep"); }
TEST(Tiles, OfABlockCalledAgain) { expect_bits_of_whole_layers<Recurrent>("recurrent"); }

TEST(Tiles, AreUnitsWithinTheirBlock) {
  InTiles<Deep> model;
  const UnitPlan plan = plan_units(model, 2);
  ASSERT_EQ(plan.units[0].name, "blocks.0");
  EXPECT_EQ(plan.units[0].parameters.size(), 8u);  // norms and biases of two blocks
  EXPECT_EQ(plan.units[1].name, "blocks.0.up tile 0");
  EXPECT_EQ(plan.units[4].name, "blocks.0.up tile 3");
  EXPECT_EQ(plan.units[5].name, "blocks.0.down tile 0");
  EXPECT_EQ(plan.units[9].name, "blocks.1.up tile 0");
  const std::int64_t rows = plan.units[1].parameters[0].shape[0];
  EXPECT_EQ(rows, kHidden / 4);  // 37 rows: 9, 9, 9, 10
  EXPECT_EQ(plan.units[4].parameters[0].shape, (Shape{kHidden - 3 * rows, kIn}));
  EXPECT_EQ(plan.visits[1].units, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(plan.visits[1].around, std::optional<std::size_t>(0));
  // The head is outside of all units: its tiles are visited by themselves, its bias is always there.
  EXPECT_EQ(plan.units.back().name, "rest");
  EXPECT_EQ(plan.units[plan.units.size() - 2].name, "head tile 2");  // 3 rows
  EXPECT_FALSE(plan.visits.back().around);
}

TEST(Tiles, CannotBeCutAgain) {
  InTiles<Plain> model;
  EXPECT_TRUE(names(error_text([&] { tile_linears(model, 2); }), "2 tiles", "4 already"));
  EXPECT_TRUE(names(error_text([&] { tile_linears(model, 0); }), "0 tiles", "at least 1"));
}

}  // namespace
}  // namespace zeepo
