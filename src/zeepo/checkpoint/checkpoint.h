// A checkpoint open for reading: any range of any weight and its moments, with every byte checked that is used.
//
// Opening checks the manifest, the size of every file and every header, and that the ranges of each weight cover it
// once. A tensor's checksum is compared when the tensor is first used. Every fault is an Error naming file and tensor.
// All reads come from one thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "zeepo/base/file.h"
#include "zeepo/checkpoint/manifest.h"
#include "zeepo/model/safetensors.h"

namespace zeepo {

// Of the checkpoint in this directory. Throws Error where there is none, or it is damaged.
Manifest read_manifest(const std::filesystem::path& directory);

class Checkpoint {
 public:
  explicit Checkpoint(const std::filesystem::path& directory);

  const std::filesystem::path& path() const { return path_; }
  const Manifest& manifest() const { return manifest_; }
  std::filesystem::path model_folder() const { return path_ / kModelFolder; }
  std::int64_t bytes() const;  // of all state files

  // Elements [begin, begin + out.size()) of a weight: kind 0 is its exact fp32 value, 1 and 2 its moments. A weight
  // without moments, which was not trained, has zeros.
  void read(const std::string& weight, std::size_t kind, std::int64_t begin, std::span<float> out);
  // The files of the model that are in the checkpoint: config.json, the tokenizer.
  void verify_model_files();
  // Compares every checksum. `progress` is told the bytes compared so far.
  void verify(const std::function<void(std::int64_t bytes)>& progress = {});

 private:
  struct Tensor {
    std::size_t file = 0;
    std::string name;
    DType dtype = DType::f32;
    std::int64_t offset = 0, elements = 0;
    std::string checksum;
    bool verified = false;
  };
  struct Range {
    std::int64_t begin = 0, end = 0;
    std::vector<std::size_t> tensors;  // of each kind
  };
  struct StateFile {
    InputFile file;
    std::int64_t data_offset = 0;
  };

  void open_file(const Manifest::StateFile& listed);
  void index_tensor(std::size_t tensor);
  void check_ranges();
  void check_tensor(Tensor& tensor);
  std::string checksum_in(const InputFile& file, std::int64_t offset, std::int64_t bytes);

  std::filesystem::path path_;
  Manifest manifest_;
  std::vector<StateFile> files_;
  std::vector<Tensor> tensors_;
  std::map<std::string, std::vector<Range>> weights_;
  std::vector<std::byte> chunk_;
};

}  // namespace zeepo
