// The weights of a model directory: model.safetensors, or the shards that model.safetensors.index.json names.
//
// Opening checks everything but the values: that each shard is there and sound, holds what the index says, and that no
// tensor is in two of them. Reads may come from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/model/safetensors.h"

namespace zeepo {

inline constexpr const char* kWeightIndexFile = "model.safetensors.index.json";

struct WeightIndex {
  std::map<std::string, std::string> file_of;  // tensor name to file name, which has no directory part
  std::optional<double> total_bytes;           // what metadata.total_size says; often stale in files in the wild
};

// The index's JSON text; `what` names the file in errors.
WeightIndex parse_weight_index(std::string_view json, const std::string& what);

class WeightFiles {
 public:
  // Throws Error saying what was looked for when the directory has no safetensors weights.
  explicit WeightFiles(const std::filesystem::path& directory);

  const std::filesystem::path& directory() const { return directory_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  std::vector<std::string> names() const;                     // sorted
  const SafetensorsEntry* find(std::string_view name) const;  // nullptr when there is none
  // Like find, but a tensor that is not there is an Error.
  const SafetensorsEntry& at(std::string_view name) const;
  // The file that holds it.
  const SafetensorsFile& file_of(std::string_view name) const { return files_[place(name).file]; }
  void read(std::string_view name, std::int64_t begin_element, std::span<float> out) const;

 private:
  struct Place {
    std::size_t file = 0;
    const SafetensorsEntry* entry = nullptr;
  };
  void open(const std::string& file_name);
  const Place& place(std::string_view name) const;

  std::filesystem::path directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;
};

// Whether the directory has weights that WeightFiles would try to open.
bool has_weights(const std::filesystem::path& directory);

}  // namespace zeepo
