#include "zeepo/data/scratch_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

std::string folder() {
  const char* named = std::getenv("TMPDIR");
  return named != nullptr && *named != '\0' ? named : "/tmp";
}

}  // namespace

ScratchFile::ScratchFile() {
  std::string path = folder() + "/zeepo-XXXXXX";
  descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
  if (descriptor_ < 0)
    throw Error("cannot create a temporary file in {}: {}; set TMPDIR to another folder", folder(),
                std::strerror(errno));
  ::unlink(path.c_str());
}

ScratchFile::~ScratchFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), bytes_(other.bytes_) {}

void ScratchFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(descriptor_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      throw Error("cannot write a temporary file in {} past {} bytes: {}; set TMPDIR to a folder with more room",
                  folder(), bytes_, std::strerror(errno));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    bytes_ += n;
  }
}

void ScratchFile::read(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(descriptor_, out.data(), out.size(), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error("cannot read a temporary file at offset {}: {}", offset, std::strerror(errno));
    if (n == 0) throw Error("a temporary file of {} bytes was read at offset {}", bytes_, offset);
    out = out.subspan(static_cast<std::size_t>(n));
    offset += n;
  }
}

}  // namespace zeepo
