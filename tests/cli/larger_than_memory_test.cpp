// Models larger than the memory they are given, trained and asked by the program as a user runs it.
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_directory.h"
#include "tests/support/written_model.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr std::int64_t kMiB = 1 << 20, kDevice = 13 * kMiB, kHost = 14 * kMiB;

class LargerThanMemory : public testing::Test {
 protected:
  LargerThanMemory() {
    std::string tokens;
    for (int i = 0; i < 600; ++i) tokens += {static_cast<char>(i * 7 % 251), static_cast<char>(i % 4)};
    directory_.write("tokens.bin", tokens);
  }

  // The summary of two steps.
  Json train(int layers, const Arguments& given) {
    directory_.write("config.json", fmt::format(R"({{"model_type": "llama", "architectures": ["LlamaForCausalLM"],
      "hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": {}, "num_attention_heads": 8,
      "num_key_value_heads": 4, "vocab_size": 1024, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
      "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": true}})",
                                                layers));
    const std::string path = directory_.path();
    Arguments arguments{"train",          "--model",   path,       "--data",  path + "/tokens.bin",
                        "--from-scratch", "--seq-len", "32",       "--steps", "2",
                        "--threads",      "2",         "--device", "cpu",     "--dtype",
                        "fp32",           "--log",     "-"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    const Finished finished = run_program(kProgram, arguments, {});
    EXPECT_EQ(finished.code, 0) << finished.err;
    said_ = finished.err;
    if (finished.code == 0) plan_ = Json::parse(finished.out.substr(0, finished.out.find('\n')));
    return finished.code == 0 ? Json::parse(finished.out.substr(finished.out.rfind("{\"event\":\"summary\""))) : Json();
  }
  Arguments everything_in_files() const {
    return {"--offload-param",
            "nvme",
            "--offload-optimizer",
            "nvme",
            "--offload-activations",
            "nvme",
            "--nvme-path",
            directory_.path().string(),
            "--memory",
            fmt::format("device={},host={}", kDevice, kHost),
            "--prefetch",
            "0"};
  }

  TestDirectory directory_;
  Json plan_;         // of the last run
  std::string said_;  // by it
};

TEST_F(LargerThanMemory, TrainsWithTheSameBits) {
  constexpr int kLayers = 18;
  const Json resident = train(kLayers, {}), small = train(kLayers, everything_in_files());
  ASSERT_FALSE(resident.is_null() || small.is_null());
  const std::int64_t states = 16 * small.at("params").get<std::int64_t>();
  ASSERT_GE(states, 8 * (kDevice + kHost));
  EXPECT_EQ(small.at("loss"), resident.at("loss"));
  EXPECT_EQ(small.at("weights_hash"), resident.at("weights_hash"));
  const Json& rank = small.at("ranks").at(0);
  EXPECT_LE(rank.at("peak_bytes").at("device").at("total").get<std::int64_t>(), kDevice);
  EXPECT_LE(rank.at("peak_bytes").at("host").at("total").get<std::int64_t>(), kHost);
  EXPECT_LE(rank.at("rss_bytes").get<std::int64_t>(), kDevice + kHost + 200 * kMiB);

  const Json shallow = train(kLayers / 3, everything_in_files());
  ASSERT_FALSE(shallow.is_null());
  // But for a number each 64Ki gradients, of the norm.
  const auto working = [](const Json& summary) {
    return summary.at("ranks").at(0).at("peak_bytes").at("device").at("working").get<double>();
  };
  EXPECT_NEAR(working(shallow), working(small), 0.001 * working(small)) << "working memory grows with depth";
}

// Only the budgets are given; what is printed gives the same run again.
TEST_F(LargerThanMemory, IsPlacedWithinTheBudgets) {
  constexpr int kLayers = 18;
  const Arguments budgets{"--nvme-path", directory_.path().string(), "--memory",
                          fmt::format("device={},host={}", kDevice, kHost)};
  const auto with = [&](Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  };
  const Json resident = train(kLayers, {}), small = train(kLayers, with(budgets, {"--placement", "auto"}));
  ASSERT_FALSE(resident.is_null() || small.is_null());
  EXPECT_EQ(small.at("weights_hash"), resident.at("weights_hash"));
  const Json& rank = small.at("ranks").at(0);
  EXPECT_LE(rank.at("peak_bytes").at("device").at("total").get<std::int64_t>(), kDevice);
  EXPECT_LE(rank.at("peak_bytes").at("host").at("total").get<std::int64_t>(), kHost);
  EXPECT_LE(rank.at("rss_bytes").get<std::int64_t>(), kDevice + kHost + 200 * kMiB);

  const std::string flags = plan_.at("placement").at("flags");
  EXPECT_NE(said_.find("placement chosen: " + flags), std::string::npos) << said_;
  std::istringstream words(flags);
  const Json again = train(kLayers, with(budgets, {std::istream_iterator<std::string>(words), {}}));
  ASSERT_FALSE(again.is_null());
  EXPECT_EQ(again.at("weights_hash"), resident.at("weights_hash"));
  EXPECT_EQ(plan_.at("placement").at("flags"), flags);
  EXPECT_EQ(again.at("ranks").at(0).at("peak_bytes"), rank.at("peak_bytes"));
}

TEST_F(LargerThanMemory, IsTunedWhereNoOptionForbidsIt) {
  const auto levels = [&](const Arguments& more) {
    Arguments arguments{"--offload-optimizer", "nvme", "--offload-param", "host", "--nvme-path", directory_.path()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_FALSE(train(12, arguments).is_null());
    return plan_.at("tuning");
  };
  const Json pieces{4, 8, 16}, fixed{4};
  EXPECT_EQ(levels({}).at("pieces_under_way"), pieces);
  EXPECT_NE(said_.find("files: 1 file under " + directory_.path().string()), std::string::npos) << said_;
  EXPECT_EQ(levels({"--no-tune"}).at("pieces_under_way"), fixed);
  EXPECT_EQ(levels({"--prefetch", "4MiB"}), (Json{{"prefetch_bytes", {4 * kMiB}}, {"pieces_under_way", pieces}}));
}

TEST_F(LargerThanMemory, KeepsWhatTheCommandLinePlaces) {
  ASSERT_FALSE(train(4, {"--placement", "auto", "--memory", "device=58MiB,host=64MiB", "--offload-optimizer", "none",
                         "--prefetch", "1MiB"})
                   .is_null());
  const std::string flags = plan_.at("placement").at("flags");
  EXPECT_NE(flags.find("--offload-optimizer none"), std::string::npos) << flags;
  EXPECT_NE(flags.find("--prefetch 1048576"), std::string::npos) << flags;
}

// The KV cache is full. What the program takes without a model is measured with a tiny one.
TEST(AskedModel, TakesNoMoreThanItsBudgets) {
  constexpr std::int64_t kBudget = 32 * kMiB, kAllowance = 24 * kMiB;
  const TestDirectory directory;
  const auto prompts = [&](int positions) {
    std::string lines;
    for (int i = 0; i < 4; ++i)
      lines += Json{{"ids", std::vector<int>(static_cast<std::size_t>(positions - 4), i)}}.dump() + "\n";
    return directory.write("prompts.jsonl", lines).string();
  };
  const auto asked = [&](const std::string& model, const Arguments& more) {
    Arguments arguments{"generate",
                        "--model",
                        model,
                        "--batch-file",
                        prompts(32),
                        "--max-new-tokens",
                        "4",
                        "--ignore-eos",
                        "--device",
                        "cpu",
                        "--threads",
                        "2",
                        "--json",
                        "--prefetch",
                        "4MiB",
                        "--nvme-path",
                        directory.path(),
                        "--memory",
                        fmt::format("device={},host={}", kBudget, kBudget),
                        "--offload-param",
                        "nvme"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = run_program(kProgram, arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    return finished.code == 0 ? Json::parse(finished.out.substr(finished.out.rfind("{\"event\":\"summary\""))) : Json();
  };
  const auto config = [](int layers) {
    return Json{{"model_type", "llama"},
                {"architectures", {"LlamaForCausalLM"}},
                {"hidden_size", 256},
                {"intermediate_size", 768},
                {"num_hidden_layers", layers},
                {"num_attention_heads", 8},
                {"num_key_value_heads", 8},
                {"vocab_size", 1024},
                {"max_position_embeddings", 64},
                {"rms_norm_eps", 1e-5},
                {"rope_theta", 10000},
                {"hidden_act", "silu"},
                {"tie_word_embeddings", true}};
  };
  const TestDirectory large, tiny;
  write_model(large.path(), config(38));
  write_model(tiny.path(), config(1));
  const auto rss = [](const Json& summary) { return summary.at("ranks").at(0).at("rss_bytes").get<std::int64_t>(); };
  for (const Arguments& kv : {Arguments{}, Arguments{"--offload-kv", "host"}}) {
    const Json small = asked(tiny.path(), kv), summary = asked(large.path(), kv);
    ASSERT_FALSE(small.is_null() || summary.is_null());
    const std::int64_t model = 4 * summary.at("params").get<std::int64_t>();
    ASSERT_GT(model, 2 * kBudget + kAllowance + 32 * kMiB);
    EXPECT_EQ(summary.at("kv_cache").at("positions"), 4 * 32);
    EXPECT_GT(summary.at("files").at("in_place_bytes").get<std::int64_t>(), model / 100 * 99);  // the last norm stays
    const Json& peak = summary.at("ranks").at(0).at("peak_bytes");
    for (const char* place : {"device", "host"}) EXPECT_LE(peak.at(place).at("total").get<std::int64_t>(), kBudget);
    const std::int64_t cache = 2 * 38 * 4 * 32 * 256 * 4;
    EXPECT_GE(peak.at(kv.empty() ? "device" : "host").at("total").get<std::int64_t>(), cache);
    EXPECT_LE(rss(summary), rss(small) + 2 * kBudget + kAllowance);
  }
}

}  // namespace
}  // namespace zeepo
