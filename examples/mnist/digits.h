// Images of digits and what they show, from the four IDX files of MNIST.
#pragma once

#include <filesystem>
#include <string>

#include "zeepo/zeepo.h"

namespace mnist {

using namespace zeepo;

class Digits {
 public:
  static constexpr std::int64_t kSide = 28;

  // Reads NAME-images-idx3-ubyte and NAME-labels-idx1-ubyte, plain or with .gz, where NAME is "train" or "t10k".
  // Throws Error when one is missing, is not what it should be, or does not fit the other.
  Digits(const std::filesystem::path& directory, const std::string& name);

  std::int64_t count() const { return static_cast<std::int64_t>(labels_.size()); }
  int label(std::int64_t i) const { return labels_[static_cast<std::size_t>(i)]; }

  struct Batch {
    Tensor images;  // (N, 1, 28, 28), mean about 0 and deviation about 1
    Tensor labels;  // int32 (N)
  };
  Batch batch(const std::vector<std::int64_t>& indices) const;

 private:
  std::vector<std::uint8_t> pixels_, labels_;
};

}  // namespace mnist
