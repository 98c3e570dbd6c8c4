// `mpirun -n N zeepo generate`: the parameters are cut over the ranks, the tokens are those of one, and rank 0 alone
// prints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/mpirun.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

std::vector<Json> printed(int ranks, const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"-n",          std::to_string(ranks),
                                     ZEEPO_PROGRAM, "generate",
                                     "--model",     golden("llama-tiny").string(),
                                     "--ids",       "1,2,3",
                                     "--json",      "--max-new-tokens",
                                     "6",           "--ignore-eos",
                                     "--threads",   "1",
                                     "--memory",    "device=64MiB,host=64MiB"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto finished = run_program(ZEEPO_MPIRUN, arguments);
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::vector<Json> lines;
  std::istringstream text(finished.out);
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(GenerateOnRanks, ShardsTheModelAndPrintsOnce) {
  const auto alone = printed(1, {});
  ASSERT_EQ(alone.size(), 2u);
  const std::int64_t params = alone[1].at("ranks").at(0).at("peak_bytes").at("device").at("params");
  for (const auto& more : {std::vector<std::string>{}, {"--offload-param", "host"}}) {
    const auto lines = printed(3, more);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0].at("ids"), alone[0].at("ids"));
    EXPECT_EQ(lines[1].at("world_size"), 3);
    ASSERT_EQ(lines[1].at("ranks").size(), 3u);
    for (const Json& rank : lines[1].at("ranks")) {
      const auto& peak = rank.at("peak_bytes").at(more.empty() ? "device" : "host");
      EXPECT_LT(peak.at("params").get<std::int64_t>(), params / 2);
      EXPECT_GT(rank.at("comm_bytes").at("all_gather").get<std::int64_t>(), params / 2);  // of the last pass
    }
  }
}

}  // namespace
}  // namespace zeepo
