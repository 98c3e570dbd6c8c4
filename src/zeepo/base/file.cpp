#include "zeepo/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// What a file is that is not a regular one.
const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a FIFO (a named pipe)";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISBLK(mode)) return "a block device";
  return "no regular file";
}

void check_regular(const std::filesystem::path& path, mode_t mode) {
  if (!S_ISREG(mode))
    throw Error("cannot read {}: it is {}, must be a regular file; copy its content into one", path.string(),
                kind_of(mode));
}

// Looks first: opening a FIFO would wait for a writer, and opening a device may do something.
int open_for_reading(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw Error("cannot open {}: {}", path.string(), std::strerror(errno));
  check_regular(path, status.st_mode);
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor < 0) throw Error("cannot open {}: {}", path.string(), std::strerror(errno));
  return descriptor;
}

struct stat status_of(int descriptor, const std::string& name) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw Error("cannot read {}: {}", name, std::strerror(errno));
  return status;
}

FileStamp stamp_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

// A file is put in its place by a rename, which would replace a device by a file.
void check_replaceable(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode))
    throw Error("cannot write {}: it is {}; choose another name", path.string(), kind_of(status.st_mode));
}

}  // namespace

FileStamp stamp_of(int descriptor, const std::string& name) { return stamp_of(status_of(descriptor, name)); }

bool file_exists(const std::filesystem::path& path) {
  std::error_code cause;
  const bool found = std::filesystem::exists(path, cause);
  if (cause) throw Error("cannot look for {}: {}", path.string(), cause.message());
  return found;
}

std::string read_text(const std::filesystem::path& path, std::int64_t limit_bytes) {
  const InputFile file(path);
  if (file.bytes() > limit_bytes)
    throw Error("{}: {} bytes, more than the {} that such a file may have", path.string(), file.bytes(), limit_bytes);
  std::string text(static_cast<std::size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path), descriptor_(open_for_reading(path)) {
  try {
    const struct stat status = status_of(descriptor_, path.string());
    check_regular(path, status.st_mode);  // it may be another one than was looked at
    stamp_ = stamp_of(status);
  } catch (const Error&) {
    ::close(descriptor_);
    throw;
  }
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), stamp_(other.stamp_) {}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void InputFile::read(std::int64_t offset, std::span<std::byte> out) const {
  if (offset < 0 || offset + static_cast<std::int64_t>(out.size()) > bytes())
    throw Error("{}: {} bytes at offset {} are past its end at {}", path_.string(), out.size(), offset, bytes());
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("cannot read {} at offset {}: {}", path_.string(), offset, std::strerror(errno));
    if (n == 0) throw Error("{}: ended at offset {} while being read", path_.string(), offset);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

OutputFile::OutputFile(std::filesystem::path path) : path_(std::move(path)) {
  check_replaceable(path_);
  partial_ = path_;
  partial_ += fmt::format(".partial-{}", ::getpid());
  listed_ = PartialPath(partial_);
  descriptor_ = ::open(partial_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor_ < 0) throw Error("cannot create {}: {}", path_.string(), std::strerror(errno));
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      listed_(std::move(other.listed_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile::~OutputFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  remove_partial();
}

void OutputFile::remove_partial() noexcept {
  ::unlink(partial_.c_str());
  listed_.release();
}

void OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void OutputFile::write(std::string_view text) { write(std::as_bytes(std::span(text))); }

void OutputFile::commit(Sync sync) {
  if (sync == Sync::yes && ::fsync(descriptor_) != 0)
    throw Error("cannot write {}: {}", path_.string(), std::strerror(errno));
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    const int cause = errno;
    remove_partial();
    throw Error("cannot write {}: {}", path_.string(), std::strerror(cause));
  }
  if (::rename(partial_.c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    remove_partial();
    throw Error("cannot write {}: {}", path_.string(), std::strerror(cause));
  }
  listed_.release();
}

}  // namespace zeepo
