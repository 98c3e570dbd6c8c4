// A file without a name, of a size that the disk has promised: it is gone when closed, even by a crash.
//
// Only its owner could have opened it (mode 0600). Its blocks are allocated by fallocate or, where the file system has
// none, by writing zeros: a full disk is found here, not later. O_DIRECT where the file system takes it, else buffered.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "zeepo/io/engine.h"

namespace zeepo {

class UnnamedFile {
 public:
  // Throws Error naming the directory, and for a full disk the bytes asked for and the bytes free. `name` is how errors
  // of the file call it.
  UnnamedFile(const std::filesystem::path& directory, std::int64_t bytes, std::string name);
  ~UnnamedFile();
  UnnamedFile(UnnamedFile&&) noexcept;
  UnnamedFile& operator=(UnnamedFile&&) = delete;

  const IoFile& file() const { return file_; }
  const std::string& why_buffered() const { return why_buffered_; }  // empty with O_DIRECT

 private:
  void open(const std::filesystem::path& directory);
  void allocate(const std::filesystem::path& directory, std::int64_t bytes);
  void try_direct(std::int64_t bytes);

  IoFile file_;
  std::string why_buffered_;
};

// Throws Error naming the directory when the disk is full, or fails.
void write_zeros(int descriptor, std::int64_t bytes, const std::filesystem::path& directory);

}  // namespace zeepo
