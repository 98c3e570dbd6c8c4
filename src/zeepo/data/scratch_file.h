// A temporary file without a name: written from front to back, read at any offset, gone when the process is.
//
// Made in TMPDIR (else /tmp). Writing is for one thread; reading is for any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace zeepo {

class ScratchFile {
 public:
  ScratchFile();
  ~ScratchFile();
  ScratchFile(ScratchFile&&) noexcept;
  ScratchFile& operator=(ScratchFile&&) = delete;

  std::int64_t bytes() const { return bytes_; }
  // Throws Error naming the folder and the way out when it is full.
  void write(std::span<const std::byte> bytes);
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  int descriptor_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace zeepo
