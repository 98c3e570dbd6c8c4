// `zeepo generate --batch-file`: prompts of unequal length together, results in the order of the file; a bad file gets
// one clear error.
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

class BatchFile : public ::testing::Test {
 protected:
  Finished generate(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{
        "generate", "--model", golden("llama-tiny").string(), "--memory", "device=64MiB", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_program(kProgram, arguments);
  }
  std::vector<Json> lines_of(const std::vector<std::string>& more) const {
    const Finished finished = generate(more);
    EXPECT_EQ(finished.code, 0) << finished.err;
    std::vector<Json> lines;
    std::istringstream text(finished.out);
    for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  std::string file(const std::string& text) const {
    const std::string path = directory_.path() / "prompts.jsonl";
    std::ofstream(path) << text;
    return path;
  }

  const TestDirectory directory_;
};

TEST_F(BatchFile, GivesEachPromptWhatItGetsAlone) {
  const std::vector<std::string> prompts{"1,2,3", "4", "5,6,7,8,9,10,11,12,13,14,15", "3,2,1"};
  std::string text = "\n";
  for (std::size_t i = 0; i < prompts.size(); ++i)
    text += fmt::format("{{\"ids\":[{}],\"max_new_tokens\":{}}}\r\n", prompts[i], 9 - 2 * i);
  text += "{\"ids\":[7,7]}\n";
  const auto lines = lines_of({"--batch-file", file(text), "--max-new-tokens", "4", "--ignore-eos", "--json",
                               "--max-batch", "3", "--prefill-chunk", "5"});
  ASSERT_EQ(lines.size(), 6u);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const auto alone =
        lines_of({"--ids", prompts[i], "--max-new-tokens", std::to_string(9 - 2 * i), "--ignore-eos", "--json"});
    EXPECT_EQ(lines[i].at("ids"), alone[0].at("ids"));
    EXPECT_EQ(lines[i].at("prompt_tokens"), alone[0].at("prompt_tokens"));
    EXPECT_GE(lines[i].at("seconds_to_first_token"), lines[i].at("seconds_prefill"));
  }
  EXPECT_EQ(lines[4].at("ids").size(), 4u);
  EXPECT_EQ(lines[5].at("event"), "summary");
  EXPECT_EQ(lines[5].at("sequences"), 5);
  EXPECT_EQ(lines[5].at("tokens"), 9 + 7 + 5 + 3 + 4);
  EXPECT_GT(lines[5].at("seconds_per_step"), 0);
}

TEST_F(BatchFile, AFaultNamesFileAndLine) {
  const auto fault = [&](const std::string& text) {
    const Finished finished = generate({"--batch-file", file(text)});
    EXPECT_EQ(finished.code, 1);
    EXPECT_EQ(std::ranges::count(finished.err, '\n'), 1) << finished.err;
    return finished.err;
  };
  EXPECT_TRUE(names(fault("{\"ids\":[1]}\n{\"ids\":[1]"), "prompts.jsonl:2", "not JSON"));
  EXPECT_TRUE(names(fault("[1]"), "prompts.jsonl:1"));
  EXPECT_TRUE(names(fault("{}"), "prompts.jsonl:1", "\"prompt\" or \"ids\""));
  EXPECT_TRUE(names(fault("{\"ids\":[1],\"prompt\":\"a\"}"), "\"prompt\" or \"ids\""));
  EXPECT_TRUE(names(fault("{\"ids\":[1.5]}"), "prompts.jsonl:1.ids[0]"));
  EXPECT_TRUE(names(fault("{\"ids\":[]}"), "prompts.jsonl:1", "empty"));
  EXPECT_TRUE(names(fault("{\"ids\":[100000]}"), "prompts.jsonl:1", "vocabulary"));
  EXPECT_TRUE(names(fault("{\"ids\":[1],\"max_new_tokens\":-1}"), "max_new_tokens"));
  EXPECT_TRUE(names(fault("{\"ids\":[1],\"max_new_tokens\":2000000000}"), "positions"));
  EXPECT_TRUE(names(fault("{\"prompt\":\"a\"}"), "tokenizer.json"));
  EXPECT_TRUE(names(fault("\n\n"), "no prompt"));
}

TEST_F(BatchFile, IsOneOfThreeWaysToGiveAPrompt) {
  const std::string path = file("{\"ids\":[1]}");
  for (const auto& more : {std::vector<std::string>{"--ids", "1"}, {"--prompt", "a"}, {"--logits", "x"}}) {
    std::vector<std::string> arguments{"--batch-file", path};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = generate(arguments);
    EXPECT_EQ(finished.code, 2);
    EXPECT_TRUE(names(finished.err, "--batch-file"));
  }
}

TEST_F(BatchFile, ATraceShowsItsPasses) {
  const std::string trace = directory_.path() / "trace.json";
  const Finished finished =
      generate({"--batch-file", file("{\"ids\":[1]}\n{\"ids\":[2,3]}"), "--max-new-tokens", "3", "--trace", trace});
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_TRUE(names(whole_file(trace), "pass 1", "pass 3"));
}

}  // namespace
}  // namespace zeepo
