// Ten times the layers are ten times the work of planning a run. Counts of turns, never times (base/work_count.h).
#include <gtest/gtest.h>

#include "tests/support/scratch_model.h"
#include "zeepo/base/work_count.h"
#include "zeepo/train/memory_plan.h"

namespace zeepo {
namespace {

struct Way {
  const char* name;
  int stage, ranks;
  Placement placement = {};
  std::int64_t tiles = 1;
  float clip = 1;
};

std::int64_t work_of_planning(int layers, const Way& way) {
  const ScratchModel model(16, layers, 64, 200);
  TrainOptions options = model.options();
  options.seq_len = 8;
  options.steps = 1;
  options.stage = way.stage;
  options.placement = way.placement;
  options.linear_tiles = way.tiles;
  options.clip = way.clip;
  options.nvme_paths = {model.path()};
  options.piece_elements = EngineOptions::kPieceAlignment;
  const RankShape ranks{.rank = way.ranks - 1, .ranks = way.ranks, .ranks_on_node = way.ranks};
  const std::int64_t before = work_count();
  const MemoryPlan plan = plan_memory(make_setup(options, ranks));
  EXPECT_GT(plan.bytes[0], 0);
  return work_count() - before;
}

TEST(GrowthOfPlanning, IsThatOfTheLayers) {
  const Shares host{.host = 1}, nvme{.nvme = 1}, half{.host = 0.5};
  for (const Way& way :
       {Way{"resident", 0, 1}, Way{"stage 3", 3, 3}, Way{"tiles", 3, 3, {}, 4},
        Way{"optimizer in host memory", 2, 3, {.params = {}, .optimizer = host}},
        Way{"all in host memory", 3, 3, {.params = host, .optimizer = host, .activations = Place::host}},
        Way{"all in files", 3, 1, {.params = nvme, .optimizer = nvme, .activations = Place::nvme}},
        Way{"half of it, in the backward pass", 3, 3, {.params = half, .optimizer = half}, 1, 0}}) {
    const std::int64_t few = work_of_planning(20, way), many = work_of_planning(200, way);
    EXPECT_GT(few, 0) << way.name;
    EXPECT_LE(many, 16 * few) << way.name;  // search trees are a little deeper
  }
}

}  // namespace
}  // namespace zeepo
