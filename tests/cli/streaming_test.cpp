// `zeepo generate` with weights that stream: from the model's own files, with drafts in every mode, as codes.
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/scratch_model.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "zeepo/model/safetensors.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Finished generate(const std::string& model, const Arguments& more) {
  Arguments arguments{"generate", "--model", model, "--device", "cpu", "--ignore-eos", "--json", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(ZEEPO_PROGRAM, arguments);
}

std::vector<Json> lines_of(const std::string& model, const Arguments& more) {
  const Finished finished = generate(model, more);
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::vector<Json> lines;
  std::istringstream text(finished.out);
  for (std::string line; std::getline(text, line);) lines.push_back(Json::parse(line));
  return lines;
}

TEST(Streaming, WeightsInTheModelsOwnFilesNeedNoRoom) {
  const TestDirectory directory;
  const std::string model = golden("llama-tiny").string();
  const Arguments prompt{"--ids", "1,2,3", "--max-new-tokens", "6", "--memory", "device=16MiB,host=16MiB,nvme=1"};
  Arguments below = prompt;
  below.insert(below.end(), {"--offload-param", "nvme", "--nvme-path", directory.path().string()});
  const auto resident = lines_of(model, prompt), own = lines_of(model, below);
  ASSERT_EQ(own.size(), 2u);
  EXPECT_EQ(own[0].at("ids"), resident[0].at("ids"));
  EXPECT_GT(own[1].at("files").at("in_place_bytes"), 0);
  EXPECT_EQ(own[1].at("files").at("copied_bytes"), 0);
  const Json& rank = own[1].at("ranks").at(0);
  EXPECT_GT(rank.at("io_bytes").at("read"), 0);
  EXPECT_EQ(rank.at("io_bytes").at("write"), 0);
  EXPECT_EQ(rank.at("peak_bytes").at("nvme").at("total"), 0);
  // Copies need room, and are told of where nobody asked for them.
  below.push_back("--copy-weights");
  const Finished refused = generate(model, below);
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(names(refused.err, "nvme memory"));
  below.back() = "--dtype";
  below.push_back("bf16");
  below[5] = "device=16MiB,host=16MiB";
  const Finished converted = generate(model, below);
  EXPECT_EQ(converted.code, 0);
  EXPECT_TRUE(names(converted.err, "are copied to --nvme-path", "F32", "bf16"));
}

TEST(Streaming, EveryModeDraftsWhereDraftsAreWanted) {
  const TestDirectory directory;
  const std::string model = golden("llama-tiny").string();
  const auto prompts = directory.write("prompts.jsonl", "{\"ids\":[1,2,3]}\n{\"ids\":[9,8,7,6,5]}\n{\"ids\":[4]}\n");
  const Arguments common{"--max-new-tokens", "12", "--memory", "device=64MiB,host=64MiB", "--offload-param", "host"};
  for (const Arguments& mode :
       {Arguments{"--ids", "1,2,3"}, Arguments{"--ids", "1,2,3", "--offload-kv", "host"},
        Arguments{"--batch-file", prompts.string()},
        Arguments{"--batch-file", prompts.string(), "--offload-kv", "host", "--max-batch", "2"}}) {
    Arguments plain = common;
    plain.insert(plain.end(), mode.begin(), mode.end());
    Arguments drafting = plain;
    plain.insert(plain.end(), {"--speculate", "off"});
    drafting.insert(drafting.end(), {"--speculate", "4"});
    const auto expected = lines_of(model, plain), drafted = lines_of(model, drafting);
    ASSERT_EQ(drafted.size(), expected.size());
    for (std::size_t i = 0; i + 1 < expected.size(); ++i) EXPECT_EQ(drafted[i].at("ids"), expected[i].at("ids"));
    EXPECT_EQ(expected.back().at("speculation").at("drafted"), 0);
    EXPECT_GT(drafted.back().at("speculation").at("drafted"), 0);
  }
}

std::vector<float> logits_of(const std::string& model, const std::string& weights, const TestDirectory& directory) {
  std::string ids;
  for (int i = 0; i < 48; ++i) ids += fmt::format("{}{}", i > 0 ? "," : "", (7 + i) * (7 + i) % 96);
  const std::string path = directory.path() / "logits.safetensors";
  lines_of(model, {"--ids", ids, "--max-new-tokens", "1", "--memory", "device=64MiB,host=64MiB", "--weights-dtype",
                   weights, "--logits", path, "--cache-dir", (directory.path() / "cache").string()});
  const SafetensorsFile file(path);
  std::vector<float> values(static_cast<std::size_t>(file.at("logits").elements));
  file.read(file.at("logits"), 0, values);
  return values;
}

// Of a model that has learned something: logits of random weights say little.
TEST(Streaming, CodesKeepTheLogitsOfATrainedModel) {
  const ScratchModel scratch(64, 3, 96, 4000);
  const TestDirectory directory;
  const std::string model = directory.path() / "trained";
  const Finished trained = run_program(ZEEPO_PROGRAM, {"train",         "--model",
                                                       scratch.path(),  "--from-scratch",
                                                       "--data",        scratch.path() / "tokens.bin",
                                                       "--seq-len",     "48",
                                                       "--micro-batch", "4",
                                                       "--steps",       "60",
                                                       "--device",      "cpu",
                                                       "--threads",     "1",
                                                       "--output",      model,
                                                       "--memory",      "device=64MiB,host=64MiB"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto exact = logits_of(model, "same", directory);
  double size = 0;
  for (const float x : exact) size += static_cast<double>(x) * x;
  const auto away = [&](const std::string& weights) {
    const auto coded = logits_of(model, weights, directory);
    double difference = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      difference += std::pow(static_cast<double>(coded[i]) - static_cast<double>(exact[i]), 2);
    return std::sqrt(difference / size);
  };
  const double int8 = away("int8"), int4 = away("int4");
  EXPECT_GT(int8, 0);
  EXPECT_LT(int8, 0.02);
  EXPECT_GT(int4, int8);
  EXPECT_LT(int4, 0.15);
}

}  // namespace
}  // namespace zeepo
