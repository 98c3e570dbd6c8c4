// The file operations of a save in one place, so that a test can make any of them fail.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace zeepo {

// As the system calls: a negative result is a failure, in errno. Any thread may call.
class FileOperations {
 public:
  virtual ~FileOperations() = default;
  virtual int make_directory(const char* path);
  virtual int create(const char* path);  // for writing; a file that is there is emptied
  virtual int allocate(int file, std::int64_t bytes);
  virtual ssize_t write(int file, std::span<const std::byte> bytes, std::int64_t offset);
  virtual int start_writeback(int file, std::int64_t offset, std::int64_t bytes);  // of what was written
  virtual int sync(int file);
  virtual int sync_directory(const char* path);
  virtual int rename(const char* from, const char* to);
};

// A file of a save. Every failure is an Error naming path and cause.
class SaveFile {
 public:
  SaveFile(FileOperations& operations, std::filesystem::path path);
  ~SaveFile();
  SaveFile(const SaveFile&) = delete;
  SaveFile& operator=(const SaveFile&) = delete;

  // Takes the room now, where the file system can.
  void allocate(std::int64_t bytes);
  void write(std::int64_t offset, std::span<const std::byte> bytes);  // any thread
  void sync();                                                        // the bytes are on the disk then

 private:
  FileOperations& operations_;
  std::filesystem::path path_;
  int descriptor_;
};

// A small file, whole and on the disk.
void save_text(FileOperations& operations, const std::filesystem::path& path, std::string_view text);

}  // namespace zeepo
