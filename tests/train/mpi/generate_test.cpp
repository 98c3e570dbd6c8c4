// `mpirun -n N zeepo generate`: the parameters are cut over the ranks, the tokens are those of one, and rank 0 alone
// prints.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/mpirun.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

std::vector<Json> printed(int ranks, const std::vector<std::string>& more,
                          const std::vector<std::string>& prompt = {"--ids", "1,2,3"}) {
  std::vector<std::string> arguments{
      "-n",       std::to_string(ranks),    kProgram, "generate",     "--model",   golden("llama-tiny").string(),
      "--json",   "--max-new-tokens",       "6",      "--ignore-eos", "--threads", "1",
      "--memory", "device=64MiB,host=64MiB"};
  arguments.insert(arguments.end(), prompt.begin(), prompt.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto finished = run_program(kMpirun, arguments);
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

TEST(GenerateOnRanks, ABatchIsThatOfOneRank) {
  const TestDirectory directory;
  const std::string file = directory.path() / "prompts.jsonl";
  std::ofstream(file) << R"({"ids":[1,2,3]}
{"ids":[9,8,7,6,5,4,3,2,1],"max_new_tokens":3}
{"ids":[200]}
)";
  const std::vector<std::string> prompt{"--batch-file", file, "--max-batch", "2", "--prefill-chunk", "4"};
  const auto alone = printed(1, {}, prompt), three = printed(3, {"--offload-param", "host"}, prompt);
  ASSERT_EQ(alone.size(), 4u);
  ASSERT_EQ(three.size(), 4u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(three[i].at("ids"), alone[i].at("ids"));
  EXPECT_EQ(three[0].at("ids"), printed(1, {})[0].at("ids"));
  EXPECT_EQ(three[3].at("world_size"), 3);
}

}  // namespace
}  // namespace zeepo
