// A file that grows by a record at a time, each complete in the file when write() returns.
#pragma once

#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace zeepo {

class GrowingFile {
 public:
  enum class Mode {
    fresh,
    append_lines,  // what a killed run has left of a last line is cut off
  };
  // "-" is stdout. Throws Error, with the cause alone, when the file cannot be made, or is a FIFO that nobody reads.
  GrowingFile(const std::filesystem::path& path, Mode mode);
  ~GrowingFile();
  GrowingFile(GrowingFile&& other) noexcept : file_(std::exchange(other.file_, nullptr)) {}
  GrowingFile& operator=(GrowingFile&&) = delete;
  // Throws Error with the cause alone.
  void write(std::string_view bytes);

 private:
  std::FILE* file_ = nullptr;
};

}  // namespace zeepo
