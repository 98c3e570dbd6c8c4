#include "zeepo/model/weight_shards.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"

namespace zeepo {
namespace {

// Names of one letter and the bytes of each, as fp32.
std::vector<ModelTensor> tensors_of(std::initializer_list<std::pair<std::string, std::int64_t>> sizes) {
  std::vector<ModelTensor> tensors;
  for (const auto& [name, bytes] : sizes) tensors.push_back({name, {bytes / 4}});
  return tensors;
}

// "model-1: ab" for each file.
std::vector<std::string> cut(std::initializer_list<std::pair<std::string, std::int64_t>> sizes, std::int64_t limit) {
  std::vector<std::string> files;
  for (const auto& shard : cut_into_shards(tensors_of(sizes), DType::f32, limit)) {
    files.push_back(shard.file_name + ":");
    for (const auto& tensor : shard.tensors) files.back() += " " + tensor.name;
  }
  return files;
}

using Files = std::vector<std::string>;

TEST(WeightShards, KeepWhatFitsInOneFile) {
  EXPECT_EQ(cut({{"b", 4}, {"a", 4}}, 8), (Files{"model.safetensors: a b"}));
  EXPECT_EQ(cut({{"a", 400}}, 8), (Files{"model.safetensors: a"}));
  EXPECT_EQ(cut({}, 8), (Files{"model.safetensors:"}));
}

TEST(WeightShards, AreCutWhereTransformersCuts) {
  EXPECT_EQ(cut({{"f", 24}, {"e", 24}, {"d", 8}, {"c", 24}, {"b", 8}, {"a", 8}}, 40),
            (Files{"model-00001-of-00003.safetensors: f", "model-00002-of-00003.safetensors: d e",
                   "model-00003-of-00003.safetensors: a b c"}));
  EXPECT_EQ(cut({{"a", 8}, {"big", 400}, {"c", 8}}, 40),
            (Files{"model-00001-of-00002.safetensors: big", "model-00002-of-00002.safetensors: a c"}));
}

TEST(WeightShards, WantAPositiveSize) {
  EXPECT_TRUE(names(error_text([] { cut({{"a", 4}}, 0); }), "a shard size of 0 bytes"));
  EXPECT_TRUE(names(error_text([] { cut_into_shards({{"a", {-4}}}, DType::f32); }), "tensor \"a\""));
}

TEST(WeightShards, AreIndexedAsTransformersDoes) {
  const auto shards = cut_into_shards(tensors_of({{"b", 8}, {"a", 8}}), DType::f32, 8);
  EXPECT_EQ(weight_index_of(shards, DType::f32), R"({
  "metadata": {
    "total_parameters": 4,
    "total_size": 16
  },
  "weight_map": {
    "a": "model-00002-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors"
  }
}
)");
}

}  // namespace
}  // namespace zeepo
