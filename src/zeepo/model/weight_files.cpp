#include "zeepo/model/weight_files.h"

#include <set>

#include "zeepo/base/error.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

constexpr const char* kSingle = "model.safetensors";

bool is_plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

[[noreturn]] void fail_without_weights(const std::filesystem::path& directory) {
  if (!file_exists(directory)) throw Error("{}: there is no such directory", directory.string());
  for (const char* other : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (file_exists(directory / other))
      throw Error("{}: has {} but neither {} nor {}; convert it to safetensors", directory.string(), other, kSingle,
                  kWeightIndexFile);
  throw Error("{}: has no weights: neither {} nor {} is there", directory.string(), kSingle, kWeightIndexFile);
}

}  // namespace

WeightIndex parse_weight_index(std::string_view json, const std::string& what) {
  const Json index = parse_json_object(json, what);
  WeightIndex result;
  const auto map = index.find("weight_map");
  if (map == index.end()) throw Error("{}: has no weight_map", what);
  if (!map->is_object()) throw Error("{}: weight_map is {}, must be an object", what, map->type_name());
  if (map->empty()) throw Error("{}: weight_map names no tensor", what);
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string())
      throw Error("{}: weight_map {} is {}, must be a file name", what, shown(tensor), shown_json(file));
    const auto& name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(name))
      throw Error("{}: weight_map {} is {}, must be the name of a file in the same directory", what, shown(tensor),
                  shown(name));
    result.file_of.emplace(tensor, name);
  }
  if (const auto metadata = index.find("metadata"); metadata != index.end() && metadata->is_object())
    if (const auto total = metadata->find("total_size"); total != metadata->end() && total->is_number())
      result.total_bytes = total->get<double>();
  return result;
}

bool has_weights(const std::filesystem::path& directory) {
  return file_exists(directory / kSingle) || file_exists(directory / kWeightIndexFile);
}

WeightFiles::WeightFiles(const std::filesystem::path& directory) : directory_(directory) {
  if (file_exists(directory / kSingle)) {
    open(kSingle);
    return;
  }
  if (!file_exists(directory / kWeightIndexFile)) fail_without_weights(directory);

  const std::filesystem::path index_path = directory / kWeightIndexFile;
  const std::string what = index_path.string();
  const WeightIndex index = parse_weight_index(read_text(index_path, kMaxSafetensorsHeaderBytes), what);
  std::set<std::string> shards;
  for (const auto& [tensor, file] : index.file_of) shards.insert(file);
  for (const auto& shard : shards) {
    if (!file_exists(directory / shard))
      throw Error("{}: names the shard {}, which is not there; download it or choose a complete directory", what,
                  shown(shard));
    open(shard);
  }
  for (const auto& [tensor, file] : index.file_of) {
    const auto found = places_.find(tensor);
    if (found == places_.end() || files_[found->second.file].path().filename() != file)
      throw Error("{}: says that {} holds tensor {}, which it does not", what, shown(file), shown(tensor));
  }
}

void WeightFiles::open(const std::string& file_name) {
  files_.emplace_back(directory_ / file_name);
  const std::size_t file = files_.size() - 1;
  for (const SafetensorsEntry& entry : files_[file].entries()) {
    const auto [place, added] = places_.try_emplace(entry.name, Place{file, &entry});
    if (!added)
      throw Error("{}: tensor {} is in {} and in {}", directory_.string(), shown(entry.name),
                  files_[place->second.file].path().filename().string(), file_name);
  }
}

const WeightFiles::Place& WeightFiles::place(std::string_view name) const {
  const auto found = places_.find(name);
  if (found == places_.end()) throw Error("{}: has no tensor {}", directory_.string(), shown(name));
  return found->second;
}

std::vector<std::string> WeightFiles::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const SafetensorsEntry* WeightFiles::find(std::string_view name) const {
  const auto found = places_.find(name);
  return found == places_.end() ? nullptr : found->second.entry;
}

const SafetensorsEntry& WeightFiles::at(std::string_view name) const { return *place(name).entry; }

void WeightFiles::read(std::string_view name, std::int64_t begin_element, std::span<float> out) const {
  const Place& at = place(name);
  files_[at.file].read(*at.entry, begin_element, out);
}

}  // namespace zeepo
