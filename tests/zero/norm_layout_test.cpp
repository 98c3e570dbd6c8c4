#include "zeepo/zero/norm_layout.h"

#include <gtest/gtest.h>

#include "tests/zero/room_rig.h"
#include "zeepo/kernels/gradient_norm.h"

namespace zeepo {
namespace {

// Each block's entries are whole nodes, one after another from leaf 0 on, each used once, whatever the ranks.
TEST(NormLayout, EveryLeafIsInOneNodeOfItsBlock) {
  UnitPlan units = plain_units({3, 900, 2000, 1, 5 * kNormBlock + 7});
  units.units[1].parameters[0].trainable = units.units[1].parameters[1].trainable = false;
  for (const int ranks : {1, 2, 3, 5, 64, 999})
    for (const int rank : {0, ranks - 1}) {
      const StatePlan plan = plan_states(units, {.stage = 3}, {rank, ranks, ranks == 1});
      const NormLayout layout = norm_layout(plan);
      const std::vector<std::int32_t> table = norm_table(plan, layout);
      ASSERT_EQ(static_cast<std::int64_t>(table.size()), layout.table_elements);
      std::vector<int> used(static_cast<std::size_t>(layout.rank_nodes * ranks));
      std::int64_t leaves = 0;
      for (std::int64_t block = 0; block < layout.blocks; ++block) {
        std::int64_t leaf = 0;
        const auto b = static_cast<std::size_t>(block);
        for (std::int32_t i = table[b]; i < table[b + 1]; ++i) {
          const auto entry = static_cast<std::size_t>(layout.blocks + 1 + 2 * i);
          const int level = table[entry + 1];
          EXPECT_EQ(leaf % (std::int64_t{1} << level), 0);
          ++used[static_cast<std::size_t>(table[entry])];
          leaf += std::int64_t{1} << level;
        }
        EXPECT_LE(leaf, kNormLeaves);
        leaves += leaf;
      }
      std::int64_t expected = 0, nodes = 0;
      for (const auto& unit : plan.units)
        if (unit.trained) expected += unit.whole.elements() / kNormLeaf;
      EXPECT_EQ(leaves, expected) << ranks;
      for (const int count : used) {
        EXPECT_LE(count, 1);
        nodes += count;
      }
      EXPECT_EQ(2 * nodes + layout.blocks + 1, layout.table_elements);
    }
}

}  // namespace
}  // namespace zeepo
