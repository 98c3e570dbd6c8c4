// Saves a model as a Hugging Face directory, as transformers' save_pretrained lays it out.
//
// The values are asked for in bounded pieces, so that no rank has to hold the model. Everything is written aside and
// moved into place at the end: a fault (a full disk, a reader that throws) is an Error, leaves nothing behind and the
// target as it was. In an existing target, files of the same kinds are replaced, and weights of an older model removed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/model/weight_shards.h"

namespace zeepo {

struct ModelDirectoryOptions {
  DType dtype = DType::f32;
  std::int64_t shard_bytes = kDefaultShardBytes;
};

// Fills `out` with elements [begin_element, begin_element + out.size()) of the tensor. Called for each tensor of each
// of cut_into_shards' files in order, from element 0 on, in pieces of at most kWritePieceElements.
using TensorReader = std::function<void(const std::string& name, std::int64_t begin_element, std::span<float> out)>;
inline constexpr std::int64_t kWritePieceElements = std::int64_t{1} << 20;

// config.json, and of generation_config.json and the tokenizer's files those that the directory has.
std::vector<std::string> model_side_files(const std::filesystem::path& directory);

// The bytes of all files that write_model_directory writes. Throws Error for a file of `source` that cannot be read.
std::int64_t model_directory_bytes(const std::filesystem::path& source, const std::vector<ModelTensor>& tensors,
                                   const ModelDirectoryOptions& options = {});

// Throws Error when a model cannot be saved in `target`, whatever the room there; leaves nothing.
void check_model_target(const std::filesystem::path& target, const std::vector<ModelTensor>& tensors,
                        const ModelDirectoryOptions& options = {});

// config.json, generation_config.json and the tokenizer's files are those of `source`, which may be `target`. `tensors`
// are in the order of the model's modules; a tied head is not among them.
void write_model_directory(const std::filesystem::path& source, const std::filesystem::path& target,
                           const std::vector<ModelTensor>& tensors, const TensorReader& read,
                           const ModelDirectoryOptions& options = {});

}  // namespace zeepo
