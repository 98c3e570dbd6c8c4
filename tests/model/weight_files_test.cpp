#include "zeepo/model/weight_files.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

constexpr const char* kIndex = "model.safetensors.index.json";

// A file with one byte for each name.
std::string shard_of(std::initializer_list<std::string> names) {
  std::string header = "{";
  std::size_t at = 0;
  for (const auto& name : names) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", at == 0 ? "" : ",", name, at,
                          at + 1);
    ++at;
  }
  header += "}";
  const std::uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(at, '\0');
}

std::string fault_of(const std::string& index) {
  return error_text([&] { parse_weight_index(index, "index"); });
}

TEST(WeightFiles, OpensOneFile) {
  const WeightFiles weights(golden("qwen3-tiny"));
  EXPECT_EQ(weights.files().size(), 1u);
  const auto all = weights.names();
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end()));
  EXPECT_EQ(weights.at("model.layers.1.self_attn.k_norm.weight").shape, (std::vector<std::int64_t>{16}));
  EXPECT_EQ(weights.find("lm_head.weight"), nullptr);
  EXPECT_TRUE(names(error_text([&] { weights.at("lm_head.weight"); }), "has no tensor \"lm_head.weight\""));
}

TEST(WeightFiles, OpensShards) {
  const WeightFiles weights(golden("mistral-tiny"));
  EXPECT_EQ(weights.files().size(), 3u);
  EXPECT_EQ(weights.names().size(), 21u);
  std::vector<float> all(256 * 32), some(32);
  weights.read("lm_head.weight", 0, all);
  weights.read("lm_head.weight", 64, some);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 64));
}

TEST(WeightFiles, SaysWhatItLookedFor) {
  const TestDirectory directory;
  EXPECT_FALSE(has_weights(directory.path()));
  EXPECT_TRUE(names(error_text([&] { WeightFiles weights(directory.path()); }),
                    "neither model.safetensors nor model.safetensors.index.json"));
  directory.write("pytorch_model.bin", "");
  EXPECT_TRUE(names(error_text([&] { WeightFiles weights(directory.path()); }), "convert it to safetensors"));
  EXPECT_TRUE(names(error_text([&] { WeightFiles weights(directory.path() / "none"); }), "no such directory"));
}

TEST(WeightFiles, PrefersTheSingleFile) {
  const TestDirectory directory;
  directory.write("model.safetensors", shard_of({"a"}));
  directory.write(kIndex, "broken");
  EXPECT_EQ(WeightFiles(directory.path()).names(), (std::vector<std::string>{"a"}));
}

TEST(WeightFiles, RefusesIndexesThatAreWrong) {
  EXPECT_TRUE(names(fault_of("[]"), "must be a JSON object"));
  EXPECT_TRUE(names(fault_of("{}"), "has no weight_map"));
  EXPECT_TRUE(names(fault_of(R"({"weight_map":[]})"), "weight_map is array"));
  EXPECT_TRUE(names(fault_of(R"({"weight_map":{}})"), "names no tensor"));
  EXPECT_TRUE(names(fault_of(R"({"weight_map":{"a":1}})"), "\"a\" is 1, must be a file name"));
  for (const char* name : {"", ".", "..", "../m.safetensors", "/etc/passwd", "d/m.safetensors", "d\\\\m", "m\\u0000"})
    EXPECT_TRUE(names(fault_of(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name)), "in the same directory"))
        << name;
}

TEST(WeightFiles, ToleratesAnyMetadata) {
  const auto total = [](const std::string& metadata) {
    return parse_weight_index(R"({"metadata":)" + metadata + R"(,"weight_map":{"a":"f"}})", "index").total_bytes;
  };
  EXPECT_EQ(total(R"({"total_size":10})"), 10.0);
  EXPECT_EQ(total(R"({"total_size":"10"})"), std::nullopt);
  EXPECT_EQ(total("null"), std::nullopt);
}

TEST(WeightFiles, RefusesShardsThatDoNotMatchTheIndex) {
  const TestDirectory directory;
  const auto fault = [&] { return error_text([&] { WeightFiles weights(directory.path()); }); };
  directory.write(kIndex, R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  directory.write("1.safetensors", shard_of({"a"}));
  EXPECT_TRUE(names(fault(), "the shard \"2.safetensors\", which is not there"));
  directory.write("2.safetensors", shard_of({"c"}));
  EXPECT_TRUE(names(fault(), "says that \"2.safetensors\" holds tensor \"b\", which it does not"));
  directory.write("2.safetensors", shard_of({"a", "b"}));
  EXPECT_TRUE(names(fault(), "tensor \"a\" is in 1.safetensors and in 2.safetensors"));
  directory.write("1.safetensors", shard_of({"b"}));
  directory.write("2.safetensors", shard_of({"a"}));
  EXPECT_TRUE(names(fault(), "says that \"1.safetensors\" holds tensor \"a\", which it does not"));
  directory.write("1.safetensors", shard_of({"a", "more"}));
  directory.write("2.safetensors", shard_of({"b"}));
  EXPECT_EQ(WeightFiles(directory.path()).names(), (std::vector<std::string>{"a", "b", "more"}));
  const std::string truncated = shard_of({"b"});
  directory.write("2.safetensors", truncated.substr(0, truncated.size() - 1));
  EXPECT_TRUE(names(fault(), "2.safetensors: tensor \"b\""));
  directory.write(kIndex, R"({"weight_map":{"a":")" + std::string(5000, 'x') + "\"}}");
  EXPECT_LT(fault().size(), 8000u);
}

}  // namespace
}  // namespace zeepo
