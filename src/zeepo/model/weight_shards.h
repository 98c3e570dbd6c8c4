// How a model's tensors are cut into files: the rule of transformers' save_pretrained, as a pure function.
//
// Ranks that gather tensors for the one that writes walk the same shards in the same order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "zeepo/model/safetensors_writer.h"

namespace zeepo {

struct ModelTensor {
  std::string name;
  std::vector<std::int64_t> shape;
};

struct WeightShard {
  std::string file_name;             // "model.safetensors" or "model-00001-of-00003.safetensors"
  std::vector<ModelTensor> tensors;  // in the order of the file
};

inline constexpr std::int64_t kDefaultShardBytes = 50'000'000'000;

// `tensors` in the order of the model's modules, all stored as `dtype`. A tensor above `shard_bytes` is alone in a
// file.
std::vector<WeightShard> cut_into_shards(const std::vector<ModelTensor>& tensors, DType dtype,
                                         std::int64_t shard_bytes = kDefaultShardBytes);

// The text of model.safetensors.index.json for them.
std::string weight_index_of(const std::vector<WeightShard>& shards, DType dtype);

}  // namespace zeepo
