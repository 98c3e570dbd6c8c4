#include "zeepo/io/unnamed_file.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/io/direct_access.h"

namespace zeepo {
namespace {

std::int64_t free_bytes(const std::filesystem::path& directory) {
  struct statvfs status {};
  if (::statvfs(directory.c_str(), &status) != 0)
    throw Error("cannot ask for the free space of {}: {}", directory.string(), std::strerror(errno));
  return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

[[noreturn]] void disk_full(const std::filesystem::path& directory, std::int64_t bytes) {
  const std::int64_t available = free_bytes(directory);
  throw Error(
      "no room for a swap file of {} ({} bytes) in {}: {} ({} bytes) are free; name a directory on another disk",
      format_size(bytes), bytes, directory.string(), format_size(available), available);
}

}  // namespace

UnnamedFile::UnnamedFile(const std::filesystem::path& directory, std::int64_t bytes, std::string name) {
  file_.name = std::move(name);
  // Before it takes what there is from everybody else, only to give it back.
  if (free_bytes(directory) < bytes) disk_full(directory, bytes);
  open(directory);
  try {
    allocate(directory, bytes);
    try_direct(bytes);
  } catch (...) {
    ::close(file_.descriptor);
    throw;
  }
}

UnnamedFile::~UnnamedFile() {
  if (file_.descriptor >= 0) ::close(file_.descriptor);
}

UnnamedFile::UnnamedFile(UnnamedFile&& other) noexcept
    : file_(std::move(other.file_)), why_buffered_(std::move(other.why_buffered_)) {
  other.file_.descriptor = -1;
}

void UnnamedFile::open(const std::filesystem::path& directory) {
  file_.descriptor = ::open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
  // What kernels and file systems without O_TMPFILE answer.
  if (file_.descriptor < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    std::string path = (directory / "zeepo-swap-XXXXXX").string();
    file_.descriptor = ::mkostemp(path.data(), O_CLOEXEC);
    if (file_.descriptor >= 0 && ::unlink(path.c_str()) != 0) {
      const int cause = errno;
      ::close(file_.descriptor);
      throw Error("cannot remove the name of the swap file {}: {}", path, std::strerror(cause));
    }
  }
  if (file_.descriptor < 0)
    throw Error("cannot create a swap file in {}: {}", directory.string(), std::strerror(errno));
}

void UnnamedFile::allocate(const std::filesystem::path& directory, std::int64_t bytes) {
  int code = 0;
  do code = ::fallocate(file_.descriptor, 0, 0, bytes);
  while (code != 0 && errno == EINTR);
  if (code == 0) return;
  if (errno == EOPNOTSUPP) return write_zeros(file_.descriptor, bytes, directory);
  if (errno == ENOSPC || errno == EDQUOT) disk_full(directory, bytes);
  throw Error("cannot allocate a swap file of {} ({} bytes) in {}: {}", format_size(bytes), bytes, directory.string(),
              std::strerror(errno));
}

void UnnamedFile::try_direct(std::int64_t bytes) {
  const int flags = ::fcntl(file_.descriptor, F_GETFL);
  if (flags < 0) throw Error("cannot ask for the flags of {}: {}", file_.name, std::strerror(errno));
  if (::fcntl(file_.descriptor, F_SETFL, flags | O_DIRECT) != 0) {
    why_buffered_ = std::strerror(errno);
    return;
  }
  why_buffered_ = obstacle_to_direct_reads(file_.descriptor, bytes);
  file_.direct = why_buffered_.empty();
  if (!file_.direct && ::fcntl(file_.descriptor, F_SETFL, flags) != 0)
    throw Error("cannot turn O_DIRECT off for {}: {}", file_.name, std::strerror(errno));
}

void write_zeros(int descriptor, std::int64_t bytes, const std::filesystem::path& directory) {
  const std::vector<std::byte> zeros(std::size_t{1} << 20);
  for (std::int64_t at = 0; at < bytes;) {
    const auto size = std::min<std::int64_t>(bytes - at, static_cast<std::int64_t>(zeros.size()));
    const ssize_t n = ::pwrite(descriptor, zeros.data(), static_cast<std::size_t>(size), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) disk_full(directory, bytes);
    if (n <= 0)
      throw Error("cannot write a swap file of {} bytes in {}: {} bytes at offset {}: {}", bytes, directory.string(),
                  size, at, n < 0 ? std::strerror(errno) : "the file took no byte");
    at += n;
  }
  // Some file systems find room only when they write.
  if (::fsync(descriptor) != 0 && errno != EINVAL) {
    if (errno == ENOSPC || errno == EDQUOT) disk_full(directory, bytes);
    throw Error("cannot write a swap file of {} bytes in {}: {}", bytes, directory.string(), std::strerror(errno));
  }
}

}  // namespace zeepo
