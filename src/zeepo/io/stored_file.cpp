#include "zeepo/io/stored_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/io/direct_access.h"

namespace zeepo {

StoredFile::StoredFile(const std::filesystem::path& path) {
  whole_.name = path.string();
  struct stat status {};  // opening a FIFO would wait for a writer
  if (::stat(path.c_str(), &status) != 0) throw Error("cannot open {}: {}", whole_.name, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) throw Error("cannot read {}: must be a regular file", whole_.name);
  whole_.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (whole_.descriptor < 0) throw Error("cannot open {}: {}", whole_.name, std::strerror(errno));
  try {
    stamp_ = stamp_of(whole_.descriptor, whole_.name);
    try_direct(path);
  } catch (...) {
    ::close(whole_.descriptor);
    throw;
  }
}

StoredFile::~StoredFile() {
  ::close(whole_.descriptor);
  if (blocks_.descriptor >= 0) ::close(blocks_.descriptor);
}

// A second descriptor: the first one reads what is no whole block.
void StoredFile::try_direct(const std::filesystem::path& path) {
  const std::string again = fmt::format("/proc/self/fd/{}", whole_.descriptor);  // the same file, whatever has its name
  int descriptor = ::open(again.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (descriptor < 0 && errno == ENOENT) descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (descriptor < 0) {
    why_buffered_ = std::strerror(errno);
    return;
  }
  why_buffered_ = obstacle_to_direct_reads(descriptor, stamp_.bytes);
  if (why_buffered_.empty())
    blocks_ = {descriptor, whole_.name, true};
  else
    ::close(descriptor);
}

void StoredFile::check_unchanged() const {
  if (stamp_of(whole_.descriptor, whole_.name) != stamp_)
    throw Error("{}: has changed while it is in use; start again, or keep copies with --copy-weights", whole_.name);
}

void StoredFile::add_reads(std::int64_t offset, std::span<std::byte> memory, std::vector<IoTransfer>& to) const {
  constexpr auto kBlock = static_cast<std::int64_t>(kDirectAlignment);
  const std::int64_t end = std::min(offset + static_cast<std::int64_t>(memory.size()), stamp_.bytes);
  const std::int64_t blocks =
      blocks_.descriptor >= 0 ? std::clamp(stamp_.bytes / kBlock * kBlock, offset, end) : offset;
  const auto part = [&](std::int64_t from, std::int64_t until) {
    return memory.subspan(static_cast<std::size_t>(from - offset), static_cast<std::size_t>(until - from));
  };
  if (blocks > offset) to.push_back({&blocks_, offset, part(offset, blocks)});
  if (end > blocks) to.push_back({&whole_, blocks, part(blocks, end)});
}

}  // namespace zeepo
