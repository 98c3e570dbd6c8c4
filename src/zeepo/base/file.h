// Files, with every result read: a whole file, a range of it, and one that appears only when it is complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "zeepo/base/partial_files.h"

namespace zeepo {

// Throws Error when that cannot be found out (no permission, a name too long).
bool file_exists(const std::filesystem::path& path);

// Throws Error naming the path when it cannot be read or is larger than `limit_bytes`.
std::string read_text(const std::filesystem::path& path, std::int64_t limit_bytes = std::int64_t{1} << 30);

// Which file this is, and what changes when somebody writes to it.
struct FileStamp {
  std::uint64_t device = 0, inode = 0;
  std::int64_t bytes = 0, seconds = 0, nanoseconds = 0;  // and its time of change
  friend bool operator==(const FileStamp&, const FileStamp&) = default;
};
// Of an open file; errors name it so.
FileStamp stamp_of(int descriptor, const std::string& name);

// A file open for reading at any offset, from any thread. Everything that users name as input is opened here. What is
// no regular file (a FIFO, a socket, a device, a directory) is an Error at once that says what it is.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) = delete;

  std::int64_t bytes() const { return stamp_.bytes; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  const std::filesystem::path& path() const { return path_; }
  // Fills `out` from `offset`; throws Error when the file ends first or a read fails.
  void read(std::int64_t offset, std::span<std::byte> out) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  FileStamp stamp_;
};

// A file written beside its place and moved there by commit(), after its bytes reached the disk; without commit()
// nothing is left behind, nor by a process that is told to end. An error (a full disk) names the path and the cause.
class OutputFile {
 public:
  explicit OutputFile(std::filesystem::path path);
  ~OutputFile();
  OutputFile(OutputFile&&) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);
  // Sync::no: a power cut may leave a file without its bytes, where a reader looks again anyway.
  enum class Sync { no, yes };
  void commit(Sync sync = Sync::yes);

 private:
  void remove_partial() noexcept;

  std::filesystem::path path_, partial_;
  PartialPath listed_;
  int descriptor_ = -1;
};

}  // namespace zeepo
