#include "zeepo/checkpoint/file_operations.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {

int FileOperations::make_directory(const char* path) { return ::mkdir(path, 0777); }

int FileOperations::create(const char* path) { return ::open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666); }

int FileOperations::allocate(int file, std::int64_t bytes) { return ::fallocate(file, 0, 0, bytes); }

ssize_t FileOperations::write(int file, std::span<const std::byte> bytes, std::int64_t offset) {
  return ::pwrite(file, bytes.data(), bytes.size(), offset);
}

int FileOperations::start_writeback(int file, std::int64_t offset, std::int64_t bytes) {
  return ::sync_file_range(file, offset, bytes, SYNC_FILE_RANGE_WRITE);
}

int FileOperations::sync(int file) { return ::fsync(file); }

int FileOperations::sync_directory(const char* path) {
  const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return -1;
  const int result = ::fsync(directory);
  const int cause = errno;
  ::close(directory);
  errno = cause;
  return result < 0 && cause != EINVAL ? -1 : 0;  // EINVAL: this file system has nothing to do for a directory
}

int FileOperations::rename(const char* from, const char* to) { return ::rename(from, to); }

SaveFile::SaveFile(FileOperations& operations, std::filesystem::path path)
    : operations_(operations), path_(std::move(path)), descriptor_(operations_.create(path_.c_str())) {
  if (descriptor_ < 0) throw Error("{}: cannot be made: {}", path_.string(), std::strerror(errno));
}

SaveFile::~SaveFile() { ::close(descriptor_); }

void SaveFile::allocate(std::int64_t bytes) {
  if (bytes == 0 || operations_.allocate(descriptor_, bytes) == 0) return;
  if (errno == EOPNOTSUPP || errno == ENOSYS) return;
  throw Error("{}: no room for {} bytes: {}", path_.string(), bytes, std::strerror(errno));
}

void SaveFile::write(std::int64_t offset, std::span<const std::byte> bytes) {
  const std::int64_t first = offset, all = static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {
    const ssize_t written = operations_.write(descriptor_, bytes, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0)
      throw Error("{}: {} bytes at offset {} cannot be written: {}", path_.string(), bytes.size(), offset,
                  written < 0 ? std::strerror(errno) : "the file took no byte");
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    offset += written;
  }
  // So that sync() does not find everything still to do. A file system that cannot says so at sync().
  static_cast<void>(operations_.start_writeback(descriptor_, first, all));
}

void SaveFile::sync() {
  if (operations_.sync(descriptor_) < 0)
    throw Error("{}: cannot be brought to the disk: {}", path_.string(), std::strerror(errno));
}

void save_text(FileOperations& operations, const std::filesystem::path& path, std::string_view text) {
  SaveFile file(operations, path);
  file.write(0, std::as_bytes(std::span(text)));
  file.sync();
}

}  // namespace zeepo
