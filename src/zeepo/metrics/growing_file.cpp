#include "zeepo/metrics/growing_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// The bytes up to the end of the last whole line.
off_t whole_lines(int descriptor, off_t bytes) {
  char buffer[1 << 16];
  while (bytes > 0) {
    const off_t begin = std::max<off_t>(0, bytes - static_cast<off_t>(sizeof buffer));
    const auto size = static_cast<std::size_t>(bytes - begin);
    if (::pread(descriptor, buffer, size, begin) != static_cast<ssize_t>(size)) return bytes;
    for (std::size_t i = size; i > 0; --i)
      if (buffer[i - 1] == '\n') return begin + static_cast<off_t>(i);
    bytes = begin;
  }
  return 0;
}

void cut_last_line(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) return;  // there is none yet; or the opening for writing tells why
  struct stat status {};
  int result = ::fstat(descriptor, &status);
  if (result == 0 && S_ISREG(status.st_mode)) {
    const off_t whole = whole_lines(descriptor, status.st_size);
    if (whole < status.st_size) result = ::ftruncate(descriptor, whole);
  }
  const int cause = errno;
  ::close(descriptor);
  if (result != 0) throw Error("cannot append to it: {}", std::strerror(cause));
}

// The opening of a FIFO must not wait for a reader: without one it fails.
std::FILE* open_growing(const std::filesystem::path& path, GrowingFile::Mode mode) {
  if (mode == GrowingFile::Mode::append_lines) cut_last_line(path);
  const int begin = mode == GrowingFile::Mode::append_lines ? O_APPEND : O_TRUNC;
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | begin | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (descriptor < 0)
    throw Error("cannot create it: {}",
                errno == ENXIO ? "it is a FIFO or a socket that nobody reads" : std::strerror(errno));
  const int flags = ::fcntl(descriptor, F_GETFL);
  std::FILE* file =
      flags >= 0 && ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0 ? ::fdopen(descriptor, "w") : nullptr;
  if (file != nullptr) return file;
  const int cause = errno;
  ::close(descriptor);
  throw Error("cannot create it: {}", std::strerror(cause));
}

}  // namespace

GrowingFile::GrowingFile(const std::filesystem::path& path, Mode mode)
    : file_(path == "-" ? stdout : open_growing(path, mode)) {}

GrowingFile::~GrowingFile() {
  if (file_ && file_ != stdout) std::fclose(file_);
}

void GrowingFile::write(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), file_) != bytes.size() || std::fflush(file_) != 0)
    throw Error("cannot write: {}", std::strerror(errno));
}

}  // namespace zeepo
