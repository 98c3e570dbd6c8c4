// `zeepo generate` with weights that stream: from the model's own files, with drafts in every mode, as codes.
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/scratch_model.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "tests/support/written_model.h"
#include "zeepo/model/safetensors.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Finished generate(const std::string& model, const Arguments& more) {
  Arguments arguments{"generate", "--model", model, "--device", "cpu", "--ignore-eos", "--json", "--threads", "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(kProgram, arguments);
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

// Where a link is known to be slow.
TEST(Streaming, DraftsAutomaticallyWhereItPays) {
  const std::string model = golden("llama-tiny").string();
  Arguments asked{"--ids",           "1,2,3", "--max-new-tokens", "12", "--memory", "device=64MiB,host=64MiB",
                  "--offload-param", "host"};
  const auto plain = lines_of(model, asked);
  asked.insert(asked.end(), {"--simulate-link", "host-device=10GB/s"});
  const auto slow = lines_of(model, asked);
  EXPECT_EQ(plain.back().at("speculation").at("drafted"), 0);
  EXPECT_GT(slow.back().at("speculation").at("drafted"), 0);
  EXPECT_EQ(slow[0].at("ids"), plain[0].at("ids"));
}

// Between the last "; " and " fits".
Arguments named_flags(const std::string& text) {
  const std::size_t end = text.rfind(" fits"), begin = text.rfind("; ", end) + 2;
  std::istringstream words(text.substr(begin, end - begin));
  return {std::istream_iterator<std::string>(words), {}};
}

TEST(Streaming, TheFlagsThatAnErrorNamesWork) {
  const TestDirectory directory;
  const std::string model = golden("llama-tiny").string();
  const auto prompts = directory.write("prompts.jsonl", "{\"ids\":[1,2,3]}\n{\"ids\":[9,8,7,6,5]}\n");
  struct Case {
    Arguments prompt, wishes;
    std::string device;
  };
  const Case cases[] = {{{"--ids", "1,2,3"}, {}, "150.00 KiB"},
                        {{"--batch-file", prompts.string()}, {}, "250.00 KiB"},
                        {{"--batch-file", prompts.string()}, {}, "150.00 KiB"},
                        {{"--ids", "1,2,3"}, {"--speculate", "4"}, "150.00 KiB"},
                        {{"--batch-file", prompts.string()}, {"--speculate", "4"}, "250.00 KiB"}};
  for (const auto& [prompt, wishes, device] : cases) {
    Arguments small = prompt, resident = prompt;
    small.insert(small.end(),
                 {"--max-new-tokens", "6", "--memory", "device=" + device.substr(0, 3) + "KiB,host=16MiB"});
    resident.insert(resident.end(), {"--max-new-tokens", "6", "--memory", "device=16MiB,host=16MiB"});
    Arguments refused = small;
    refused.insert(refused.end(), wishes.begin(), wishes.end());
    const Finished finished = generate(model, refused);
    EXPECT_EQ(finished.code, 1);
    ASSERT_TRUE(names(finished.err, device, " fits"));
    const Arguments flags = named_flags(finished.err);
    small.insert(small.end(), flags.begin(), flags.end());
    if (names(finished.err, "--dtype bf16")) resident.insert(resident.end(), {"--dtype", "bf16"});
    const auto got = lines_of(model, small), expected = lines_of(model, resident);
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i + 1 < got.size(); ++i) EXPECT_EQ(got[i].at("ids"), expected[i].at("ids"));
  }
}

Json llama_config(int width, int layers) {
  return {{"model_type", "llama"},
          {"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", width},
          {"intermediate_size", 3 * width},
          {"num_hidden_layers", layers},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 4},
          {"vocab_size", 512},
          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 10000},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false}};
}

// Every pass carries every weight once, in the form in which it is stored.
TEST(Streaming, ThePassesReportWhatTheyCarry) {
  const TestDirectory directory;
  write_model(directory.path(), llama_config(128, 3));
  const auto summary = [&](const Arguments& more) {
    Arguments asked{"--ids",
                    "1,2,3",
                    "--max-new-tokens",
                    "4",
                    "--memory",
                    "device=64MiB,host=64MiB",
                    "--cache-dir",
                    (directory.path() / "cache").string()};
    asked.insert(asked.end(), more.begin(), more.end());
    return lines_of(directory.path(), asked).back();
  };
  const auto carried = [&](const std::string& type) {
    const Json told = summary({"--offload-param", "host", "--weights-dtype", type});
    std::vector<std::string> stalls;
    for (const auto& [name, seconds] : told.at("stall_seconds").items()) {
      stalls.push_back(name);
      EXPECT_GE(seconds.get<double>(), 0);
    }
    EXPECT_EQ(stalls, (std::vector<std::string>{"gather", "host", "nvme"}));
    EXPECT_GT(told.at("seconds_per_step").get<double>(), 0);
    const Json& link = told.at("ranks").at(0).at("link_bytes");
    EXPECT_EQ(link.at("device_to_host"), 0);
    return std::pair{link.at("host_to_device").get<double>(), told.at("params").get<double>()};
  };
  const auto [same, params] = carried("same");
  const double int8 = carried("int8").first, int4 = carried("int4").first;
  EXPECT_NEAR(same, 4 * params, 0.01 * same);
  EXPECT_NEAR(int8 / same, 8.25 / 32, 0.005);  // bits a weight
  EXPECT_NEAR(int4 / same, 4.5 / 32, 0.005);
  const Json resident = summary({}).at("ranks").at(0).at("link_bytes");
  EXPECT_EQ(resident, (Json{{"host_to_device", 0}, {"device_to_host", 0}}));
}

TEST(Streaming, OnePromptIsTraced) {
  const TestDirectory directory;
  const std::string trace = directory.path() / "trace.json";
  lines_of(golden("llama-tiny").string(), {"--ids", "1,2,3", "--max-new-tokens", "5", "--memory",
                                           "device=16MiB,host=16MiB", "--offload-param", "host", "--trace", trace});
  const Json events = Json::parse(whole_file(trace)).at("traceEvents");
  EXPECT_GT(events.size(), 10u);
  EXPECT_TRUE(names(events.dump(), "pass 1", "pass 5", "copy"));
}

std::vector<float> read_logits(const std::filesystem::path& path) {
  const SafetensorsFile file(path);
  std::vector<float> values(static_cast<std::size_t>(file.at("logits").elements));
  file.read(file.at("logits"), 0, values);
  return values;
}

// Models in bf16 often keep their norms in fp32.
TEST(Streaming, SomeWeightsInPlaceAndSomeCopied) {
  const TestDirectory directory;
  write_model(directory.path(), llama_config(64, 2),
              [](const ModelTensor& tensor) { return tensor.shape.size() > 1 ? DType::bf16 : DType::f32; });
  const std::string logits = directory.path() / "logits";
  const Arguments asked{"--ids",    "1,2,3,4,5", "--max-new-tokens", "6",   "--memory", "device=16MiB,host=16MiB",
                        "--logits", logits,      "--dtype",          "bf16"};
  Arguments below = asked;
  below.insert(below.end(), {"--offload-param", "nvme", "--nvme-path", directory.path().string()});
  const auto expected = lines_of(directory.path(), asked);
  const auto expected_logits = read_logits(logits);
  const auto streamed = lines_of(directory.path(), below);
  EXPECT_EQ(streamed[0].at("ids"), expected[0].at("ids"));
  EXPECT_EQ(read_logits(logits), expected_logits);
  const Json& files = streamed[1].at("files");
  EXPECT_GT(files.at("in_place_bytes"), 0);
  EXPECT_GT(files.at("copied_bytes"), 0);
}

std::vector<float> logits_of(const std::string& model, const std::string& weights, const TestDirectory& directory) {
  std::string ids;
  for (int i = 0; i < 48; ++i) ids += fmt::format("{}{}", i > 0 ? "," : "", (7 + i) * (7 + i) % 96);
  const std::string path = directory.path() / "logits.safetensors";
  lines_of(model, {"--ids", ids, "--max-new-tokens", "1", "--memory", "device=64MiB,host=64MiB", "--weights-dtype",
                   weights, "--logits", path, "--cache-dir", (directory.path() / "cache").string()});
  return read_logits(path);
}

// Of a model that has learned something: logits of random weights say little.
TEST(Streaming, CodesKeepTheLogitsOfATrainedModel) {
  const ScratchModel scratch(64, 3, 96, 4000);
  const TestDirectory directory;
  const std::string model = directory.path() / "trained";
  const Finished trained = run_program(kProgram, {"train",         "--model",
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
