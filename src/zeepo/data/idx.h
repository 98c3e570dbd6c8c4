// IDX files, as MNIST has them: images and labels of unsigned bytes, plain or gzipped (told by the first bytes).
//
// The file is not trusted: sizes are checked before anything is reserved, and no more is ever unpacked than the header
// declares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace zeepo {

struct IdxArray {
  std::vector<std::int64_t> extents;  // outermost first
  std::vector<std::uint8_t> values;
};

// `name` is what errors call the file. Throws Error when the bytes are not one IDX array of unsigned bytes, whole.
IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& name);

IdxArray read_idx_images(const std::filesystem::path& path);  // (images, rows, columns)
IdxArray read_idx_labels(const std::filesystem::path& path);  // (images)

}  // namespace zeepo
