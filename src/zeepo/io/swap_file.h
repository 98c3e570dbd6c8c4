// Files as memory: bytes are written away and come back the same, or wait() throws.
//
// One unnamed file in each directory, preallocated; stripes of kStripeBytes go round all of them. What is moved is
// whole pages at page offsets. Each page has a checksum, held in memory (9 bytes a page: 36 MiB for each TiB), taken in
// write() while the bytes are already on their way, and compared in wait() of a read, which reads a page that differs
// again before it is an error. A page may be read once its write was waited for; what was never written, or whose write
// failed, cannot be read. A page that is being read must not be written. Any thread may call; the SwapFile must outlive
// its completions, and the engine the SwapFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "zeepo/io/engine.h"
#include "zeepo/io/unnamed_file.h"

namespace zeepo {

// What has been moved so far, counted when it was submitted.
struct IoBytes {
  std::int64_t read = 0, write = 0;
};

// Pages that a second read has put right, and the last of them in words.
struct PagesReadAgain {
  std::int64_t pages = 0;
  std::string last;
};

class SwapFile {
 public:
  static constexpr std::int64_t kPageBytes = 256 << 10;
  static constexpr std::int64_t kStripeBytes = 1 << 20;  // whole pages
  static constexpr std::int64_t round_up(std::int64_t bytes) {
    return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

  // Of round_up(bytes). Throws Error when there is no directory, a directory cannot be written or its disk is too full.
  SwapFile(IoEngine& engine, const std::vector<std::filesystem::path>& directories, std::int64_t bytes);

  std::int64_t bytes() const { return bytes_; }
  std::string description() const;  // "2 files under /a, /b; io_uring, 64 deep, ...; O_DIRECT"
  IoBytes moved() const;
  PagesReadAgain read_again() const;

  // Throw Error unless offset and size are whole pages of the file and the memory is aligned to kDirectAlignment.
  IoCompletion read(std::int64_t offset, std::span<std::byte> memory);
  IoCompletion write(std::int64_t offset, std::span<const std::byte> memory);

 private:
  class ReadPending;
  class WritePending;
  enum class Page : std::uint8_t { never_written, writing, written, lost };
  struct Place {
    const IoFile* file;
    std::int64_t offset;
  };

  void check(const char* what, std::int64_t offset, std::span<const std::byte> memory) const;
  Place place(std::int64_t offset) const;
  std::vector<IoTransfer> transfers(std::int64_t offset, std::span<std::byte> memory) const;
  void mark(std::size_t first, std::size_t pages, Page state);
  // Throws Error when the bytes stay others than `expected`.
  void read_page_again(std::int64_t offset, std::span<std::byte> page, std::uint64_t expected);

  IoEngine& engine_;
  std::vector<std::filesystem::path> directories_;
  std::int64_t bytes_;
  std::vector<UnnamedFile> files_;

  mutable std::mutex mutex_;
  std::vector<Page> pages_;
  std::vector<std::uint64_t> checksums_;  // of a page that is being written, they belong to who writes it
  IoBytes moved_;
  PagesReadAgain read_again_;
};

}  // namespace zeepo
