#include "zeepo/model/model_directory.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/size.h"
#include "zeepo/model/config.h"
#include "zeepo/model/saved_config.h"
#include "zeepo/model/staging_directory.h"
#include "zeepo/model/weight_files.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kCopyPieceBytes = std::int64_t{1} << 20;
constexpr const char* kConfig = "config.json";
constexpr const char* kGenerationConfig = "generation_config.json";
constexpr std::array kTokenizerFiles{
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json",
    "merges.txt",     "added_tokens.json",     "tokenizer.model",         "chat_template.jinja"};

// model-00001-of-00003.safetensors
bool is_shard_file(std::string_view name) {
  const auto take = [&name](std::string_view text) {
    const bool found = name.starts_with(text);
    if (found) name.remove_prefix(text.size());
    return found;
  };
  const auto take_number = [&name] {
    const std::size_t digits = std::min(name.find_first_not_of("0123456789"), name.size());
    name.remove_prefix(digits);
    return digits >= 5;
  };
  return take("model-") && take_number() && take("-of-") && take_number() && name == ".safetensors";
}

bool is_weight_file(const std::string& name) {
  return name == "model.safetensors" || name == kWeightIndexFile || is_shard_file(name);
}

bool is_tokenizer_file(const std::string& name) {
  return std::ranges::find(kTokenizerFiles, name) != kTokenizerFiles.end();
}

void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

void carry(const fs::path& from, const fs::path& to) {
  const InputFile in(from);
  OutputFile out(to);
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min(in.bytes(), kCopyPieceBytes)));
  for (std::int64_t at = 0; at < in.bytes(); at += kCopyPieceBytes) {
    const auto some = std::span(piece).first(static_cast<std::size_t>(std::min(in.bytes() - at, kCopyPieceBytes)));
    in.read(at, some);
    out.write(some);
  }
  out.commit();
}

std::vector<SafetensorsWriter::Tensor> tensors_of(const WeightShard& shard, DType dtype) {
  std::vector<SafetensorsWriter::Tensor> tensors;
  for (const ModelTensor& tensor : shard.tensors) tensors.push_back({tensor.name, dtype, tensor.shape});
  return tensors;
}

void write_shard(const fs::path& path, const WeightShard& shard, DType dtype, const TensorReader& read) {
  SafetensorsWriter writer(path, tensors_of(shard, dtype));
  std::vector<float> piece;
  for (const auto& tensor : writer.tensors()) {
    const std::int64_t elements = elements_of(tensor.name, tensor.shape);
    for (std::int64_t begin = 0; begin < elements; begin += kWritePieceElements) {
      piece.resize(static_cast<std::size_t>(std::min(elements - begin, kWritePieceElements)));
      read(tensor.name, begin, piece);
      writer.write(piece);
    }
  }
  writer.commit();
}

std::string config_of(const fs::path& source, DType dtype) {
  const fs::path path = source / "config.json";
  return saved_config(read_text(path, kMaxConfigBytes), dtype, path.string());
}

// Of the source's files those that the target gets as they are.
std::vector<std::string> carried_from(const fs::path& source) {
  std::vector<std::string> names;
  if (file_exists(source / kGenerationConfig)) names.emplace_back(kGenerationConfig);
  for (const char* name : kTokenizerFiles)
    if (file_exists(source / name)) names.emplace_back(name);
  return names;
}

void check_space(const fs::path& directory, std::int64_t needed) {
  const auto available = free_bytes_for(directory);
  if (available && *available < needed)
    throw Error("the model takes {} and {} are free there; make room or choose another place", format_size(needed),
                format_size(*available));
}

// The names of the files in the staging directory: weights first, so that an existing target soon has a whole set.
std::vector<std::string> write_files(const fs::path& source, const fs::path& staging,
                                     const std::vector<ModelTensor>& tensors, const TensorReader& read,
                                     const ModelDirectoryOptions& options) {
  const std::string config = config_of(source, options.dtype);
  const auto shards = cut_into_shards(tensors, options.dtype, options.shard_bytes);
  check_space(staging, model_directory_bytes(source, tensors, options));

  std::vector<std::string> names;
  for (const WeightShard& shard : shards) {
    write_shard(staging / shard.file_name, shard, options.dtype, read);
    names.push_back(shard.file_name);
  }
  if (shards.size() > 1) {
    write_text(staging / kWeightIndexFile, weight_index_of(shards, options.dtype));
    names.push_back(kWeightIndexFile);
  }
  write_text(staging / kConfig, config);
  names.push_back(kConfig);
  for (const std::string& name : carried_from(source)) {
    carry(source / name, staging / name);
    names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> model_side_files(const fs::path& directory) {
  std::vector<std::string> names{kConfig};
  for (std::string& name : carried_from(directory)) names.push_back(std::move(name));
  return names;
}

std::int64_t model_directory_bytes(const fs::path& source, const std::vector<ModelTensor>& tensors,
                                   const ModelDirectoryOptions& options) {
  const auto shards = cut_into_shards(tensors, options.dtype, options.shard_bytes);
  auto bytes = static_cast<std::int64_t>(config_of(source, options.dtype).size());
  for (const WeightShard& shard : shards) bytes += SafetensorsWriter::file_bytes(tensors_of(shard, options.dtype));
  if (shards.size() > 1) bytes += static_cast<std::int64_t>(weight_index_of(shards, options.dtype).size());
  for (const std::string& name : carried_from(source)) bytes += InputFile(source / name).bytes();
  return bytes;
}

void check_model_target(const fs::path& target, const std::vector<ModelTensor>& tensors,
                        const ModelDirectoryOptions& options) {
  const StagingDirectory trial(target);
  std::vector<std::string> names{kConfig, kWeightIndexFile, kGenerationConfig};
  names.insert(names.end(), kTokenizerFiles.begin(), kTokenizerFiles.end());
  for (const WeightShard& shard : cut_into_shards(tensors, options.dtype, options.shard_bytes))
    names.push_back(shard.file_name);
  std::error_code ignored;
  for (const std::string& name : names)
    if (fs::is_directory(target / name, ignored))
      throw Error("{} is a directory, and the model has a file of that name; remove it", (target / name).string());
}

void write_model_directory(const fs::path& source, const fs::path& target, const std::vector<ModelTensor>& tensors,
                           const TensorReader& read, const ModelDirectoryOptions& options) {
  std::string phase = "nothing there was changed";
  try {
    StagingDirectory staging(target);
    const std::vector<std::string> names = write_files(source, staging.path(), tensors, read, options);
    // Files of two tokenizers must not mix; a target keeps its own only where the source brings none.
    const bool new_tokenizer = std::ranges::any_of(names, is_tokenizer_file);
    phase = "some of its files may already be the new ones; save again";
    staging.publish(names, [&](const std::string& name) {
      return is_weight_file(name) || (new_tokenizer && is_tokenizer_file(name));
    });
  } catch (const Error& fault) {
    throw Error("cannot save the model in {}: {} ({})", target.string(), fault.what(), phase);
  }
}

}  // namespace zeepo
