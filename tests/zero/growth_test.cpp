// Ten times the units are ten times the work, whatever is done with them.
#include <numeric>

#include "tests/support/test_directory.h"
#include "tests/zero/room_rig.h"
#include "tests/zero/sharded_run.h"
#include "zeepo/base/work_count.h"
#include "zeepo/ops/loss.h"

namespace zeepo {
namespace {

// A row of blocks that are as small as may be.
class ManyBlocks : public Module {
 public:
  explicit ManyBlocks(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      blocks_.push_back(&child<GeluBlock>("blocks." + std::to_string(i), i == 0 ? kIn : kOut, kOut));
  }
  Tensor loss(Tensor x, const Tensor& targets) {
    for (Module* block : blocks_) x = (*block)(x);
    return cross_entropy(x, targets);
  }

 private:
  std::vector<Module*> blocks_;
};

struct Way {
  const char* name;
  int stage;
  Shares optimizer, params;
  StepPhase phase = StepPhase::after_backward;
  CachePolicy cache = CachePolicy::fixed;
  std::int64_t prefetch_bytes = 64 << 20;  // all of the units
};

class Growth : public testing::Test {
 protected:
  // Turns of loops on rank 0 in making an engine, two steps, and reading every weight by its name.
  std::int64_t work(std::size_t units, int ranks, const Way& way) const {
    std::int64_t counted = 0;
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) {
      const std::int64_t before = work_count();
      Session session({.threads = 1,
                       .device_bytes = 256 << 20,
                       .lower = {.host_bytes = 256 << 20,
                                 .nvme_paths = {directory_.path()},
                                 .nvme_bytes = way.optimizer.nvme > 0 ? static_cast<std::int64_t>(units + 1) << 20 : 0,
                                 .staging_bytes = 1 << 18}},
                      communicator);
      ManyBlocks model(units);
      EngineOptions options{.stage = way.stage, .prefetch_bytes = way.prefetch_bytes, .clip = 0};
      options.placement.optimizer = way.optimizer;
      options.placement.params = way.params;
      options.placement.cache = way.cache;
      options.step_phase = way.phase;
      options.piece_elements = EngineOptions::kPieceAlignment;
      ModelEngine engine(model, communicator, options);
      engine.load(fill_weights);
      for (int step = 0; step < 3; ++step) {
        engine.expect_rate(0.1);
        const Rows rows(communicator.rank(), 2);
        engine.micro_step([&] {
          return model.loss(of_dtype(DType::f32, rows.x, {2, kIn}), Tensor::from<std::int32_t>(rows.targets, {2}));
        });
        (void)engine.step(0.1);
      }
      std::map<std::string, std::vector<float>> weights;
      read_all(engine, weights);
      if (communicator.rank() == 0) counted = work_count() - before;
    });
    return counted;
  }

  TestDirectory directory_;
};

TEST_F(Growth, OfAStepIsThatOfTheUnits) {
  const Shares host{.host = 1}, nvme{.nvme = 1}, half{.host = 0.5};
  for (const Way& way :
       {Way{"stage 0", 0, {}, {}}, Way{"stage 3", 3, {}, {}}, Way{"optimizer in host memory", 3, host, {}},
        Way{"all in host memory", 3, host, host}, Way{"all in files", 3, nvme, nvme},
        Way{"a cache", 3, {}, half, StepPhase::after_backward, CachePolicy::lru},
        Way{"in the backward pass", 3, host, host, StepPhase::in_backward},
        Way{"a few ahead", 3, {}, host, StepPhase::after_backward, CachePolicy::fixed, 8 << 10}})
    for (const int ranks : {1, 3}) {
      const std::int64_t few = work(20, ranks, way), many = work(200, ranks, way);
      EXPECT_GT(few, 0);
      EXPECT_LE(many, 16 * few) << way.name << ", " << ranks << " ranks";  // search trees are a little deeper
    }
}

// Of one unit in many pieces.
TEST(GrowthOfPieces, FindingOneIsHardlyMoreWork) {
  const auto work = [](std::int64_t rows) {
    const UnitPlan units = plain_units({rows});
    EngineOptions options;
    options.placement.optimizer.host = 1;
    options.piece_elements = EngineOptions::kPieceAlignment;
    const StatePlan plan = plan_states(units, options, {0, 1, true});
    const std::int64_t before = work_count();
    for (const PiecePlan& piece : plan.units[0].pieces)
      EXPECT_EQ(plan.units[0].pieces[*plan.units[0].piece_with(piece.extent)].extent, piece.extent);
    EXPECT_FALSE(plan.units[0].piece_with({0, plan.units[0].own.end + 1}));
    return work_count() - before;
  };
  const std::int64_t few = work(40 * 1024), many = work(400 * 1024);
  EXPECT_GT(few, 0);
  EXPECT_LE(many, 20 * few);
}

}  // namespace
}  // namespace zeepo
