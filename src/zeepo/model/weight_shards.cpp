#include "zeepo/model/weight_shards.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "zeepo/base/error.h"

namespace zeepo {

std::vector<WeightShard> cut_into_shards(const std::vector<ModelTensor>& tensors, DType dtype,
                                         std::int64_t shard_bytes) {
  if (shard_bytes < 1) throw Error("a shard size of {} bytes: must be at least 1", shard_bytes);
  const auto element_bytes = static_cast<std::int64_t>(size_of(dtype));
  std::vector<WeightShard> shards;
  WeightShard open;
  std::int64_t open_bytes = 0;
  for (const ModelTensor& tensor : tensors) {
    const std::int64_t bytes = elements_of(tensor.name, tensor.shape) * element_bytes;
    if (bytes > shard_bytes) {
      shards.push_back({"", {tensor}});
      continue;
    }
    if (bytes > shard_bytes - open_bytes) {
      shards.push_back(std::move(open));
      open = {};
      open_bytes = 0;
    }
    open.tensors.push_back(tensor);
    open_bytes += bytes;
  }
  if (!open.tensors.empty() || shards.empty()) shards.push_back(std::move(open));
  for (std::size_t i = 0; i < shards.size(); ++i) {
    shards[i].file_name = shards.size() == 1 ? "model.safetensors"
                                             : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    std::ranges::sort(shards[i].tensors, {}, &ModelTensor::name);
  }
  return shards;
}

std::string weight_index_of(const std::vector<WeightShard>& shards, DType dtype) {
  nlohmann::json weight_map = nlohmann::json::object();
  std::int64_t parameters = 0;
  for (const WeightShard& shard : shards)
    for (const ModelTensor& tensor : shard.tensors) {
      weight_map[tensor.name] = shard.file_name;
      parameters += elements_of(tensor.name, tensor.shape);
    }
  const nlohmann::json index{
      {"metadata",
       {{"total_parameters", parameters}, {"total_size", parameters * static_cast<std::int64_t>(size_of(dtype))}}},
      {"weight_map", std::move(weight_map)}};
  return index.dump(2) + "\n";
}

}  // namespace zeepo
