#include "examples/mnist/digits.h"

#include <algorithm>

namespace mnist {
namespace {

constexpr std::int64_t kPixels = Digits::kSide * Digits::kSide;
constexpr float kMean = 0.13f, kDeviation = 0.31f;  // MNIST's, of pixels from 0 to 1

std::filesystem::path find(const std::filesystem::path& directory, const std::string& name) {
  for (const char* ending : {"", ".gz"})
    if (const auto path = directory / (name + ending); std::filesystem::exists(path)) return path;
  throw Error("mnist: {}: has neither {} nor {}.gz", directory.string(), name, name);
}

}  // namespace

Digits::Digits(const std::filesystem::path& directory, const std::string& name) {
  const auto images_path = find(directory, name + "-images-idx3-ubyte");
  const auto labels_path = find(directory, name + "-labels-idx1-ubyte");
  IdxArray images = read_idx_images(images_path), labels = read_idx_labels(labels_path);
  const auto& extents = images.extents;
  if (extents[1] != kSide || extents[2] != kSide)
    throw Error("mnist: {}: images of {} x {}, must be {} x {}", images_path.string(), extents[1], extents[2], kSide,
                kSide);
  if (extents[0] != labels.extents[0])
    throw Error("mnist: {} images in {}, but {} labels in {}", extents[0], images_path.string(), labels.extents[0],
                labels_path.string());
  if (labels.values.empty()) throw Error("mnist: {}: no images", images_path.string());
  if (const auto most = std::ranges::max(labels.values); most > 9)
    throw Error("mnist: {}: a label is {}, must be at most 9", labels_path.string(), most);
  pixels_ = std::move(images.values);
  labels_ = std::move(labels.values);
}

Digits::Batch Digits::batch(const std::vector<std::int64_t>& indices) const {
  std::vector<float> pixels;
  std::vector<std::int32_t> labels;
  for (const std::int64_t i : indices) {
    labels.push_back(label(i));
    for (std::int64_t p = i * kPixels; p < (i + 1) * kPixels; ++p)
      pixels.push_back((static_cast<float>(pixels_[static_cast<std::size_t>(p)]) / 255 - kMean) / kDeviation);
  }
  const auto n = static_cast<std::int64_t>(indices.size());
  return {Tensor::from<float>(pixels, {n, 1, kSide, kSide}), Tensor::from<std::int32_t>(labels, {n})};
}

}  // namespace mnist
