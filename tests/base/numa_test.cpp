#include "zeepo/base/numa.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using Policy = NumaChoice::Policy;
using Numbers = std::vector<int>;

TEST(ParseNumberList, KnowsRangesAndSingleNumbers) {
  EXPECT_EQ(parse_number_list(""), Numbers{});
  EXPECT_EQ(parse_number_list("5"), Numbers{5});
  EXPECT_EQ(parse_number_list("0-3,8,10-11"), (Numbers{0, 1, 2, 3, 8, 10, 11}));
  for (const char* text : {"a", "1-", "-1", "3-1", "1,", ",1", "1 2", "0-99999999", "99999999999999"})
    EXPECT_TRUE(names(error_text([&] { (void)parse_number_list(text); }), text, "list of numbers"));
}

// Two nodes of four CPUs, and one with memory alone.
class NumaNodes : public testing::Test {
 protected:
  NumaNodes() {
    directory_.write("has_memory", "0-2\n");
    for (const auto& [node, cpus] : {std::pair{"node0", "0-3\n"}, {"node1", "4-7\n"}, {"node2", "\n"}}) {
      std::filesystem::create_directory(directory_.path() / node);
      directory_.write(std::string(node) + "/cpulist", cpus);
    }
  }
  TestDirectory directory_;
};

TEST_F(NumaNodes, AreReadFromTheKernel) {
  const auto nodes = numa_nodes(directory_.path());
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[1].id, 1);
  EXPECT_EQ(nodes[1].cpus, (Numbers{4, 5, 6, 7}));
  EXPECT_TRUE(nodes[2].cpus.empty());
  EXPECT_TRUE(numa_nodes(directory_.path() / "absent").empty());
}

TEST_F(NumaNodes, AreChosenByTheCpusThatMayBeUsed) {
  const auto nodes = numa_nodes(directory_.path());
  const auto all = choose_nodes(nodes, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(all.policy, Policy::interleave);
  EXPECT_EQ(all.nodes, (Numbers{0, 1}));
  EXPECT_EQ(describe_numa(all), "memory spread over NUMA nodes 0, 1");
  const auto bound = choose_nodes(nodes, {5, 6});
  EXPECT_EQ(bound.policy, Policy::near);
  EXPECT_EQ(bound.nodes, Numbers{1});
  EXPECT_EQ(describe_numa(bound), "memory near NUMA node 1");
  EXPECT_EQ(choose_nodes(nodes, {}).policy, Policy::none);
}

TEST(Numa, OneNodeIsLeftAlone) {
  const auto choice = choose_nodes({{0, {0, 1}}}, {0, 1});
  EXPECT_EQ(choice.policy, Policy::none);
  EXPECT_EQ(describe_numa(choice), "");
}

// Every machine has the first of its nodes; one that does not exist is refused, and said.
TEST(Numa, MemoryIsUsableWhateverTheKernelSays) {
  constexpr std::size_t kBytes = 1 << 20;
  void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto nodes = numa_nodes();
  if (!nodes.empty()) place_on_nodes(memory, kBytes, {Policy::interleave, {nodes[0].id}});
  std::memset(memory, 1, kBytes);
  const NumaChoice nowhere{Policy::near, {1000}};
  place_on_nodes(memory, kBytes, nowhere);
  EXPECT_TRUE(names(describe_numa(nowhere), "not placed", "1000"));
  EXPECT_EQ(static_cast<char*>(memory)[kBytes - 1], 1);
  EXPECT_EQ(::munmap(memory, kBytes), 0);
}

}  // namespace
}  // namespace zeepo
