#include "zeepo/model/staging_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

// Without links and without a trailing slash, so that it has a sibling.
fs::path resolved(const fs::path& target) {
  std::error_code cause;
  fs::path path = fs::weakly_canonical(fs::absolute(target, cause), cause);
  if (cause) throw Error("{}: {}", target.string(), cause.message());
  return path.has_filename() ? path : path.parent_path();
}

void make_directory(const fs::path& path) {
  std::error_code cause;
  if (!fs::create_directory(path, cause))
    throw Error("cannot create the directory {}: {}", path.string(), cause ? cause.message() : "it is there already");
}

// With all that a killed process of the same id has left in it.
void remove_left(const fs::path& path) {
  std::error_code cause;
  fs::remove_all(path, cause);
  if (cause) throw Error("cannot remove {}, which an earlier try has left: {}", path.string(), cause.message());
}

void move(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    throw Error("cannot move {} to {}: {}", from.string(), to.string(), std::strerror(errno));
}

// A rename is on the disk only when its directory is.
void sync_directory(const fs::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) throw Error("cannot open {}: {}", path.string(), std::strerror(errno));
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL;  // some file systems have nothing to sync
  const int cause = errno;
  ::close(descriptor);
  if (!synced) throw Error("cannot sync {}: {}", path.string(), std::strerror(cause));
}

// A link to nowhere looks like a target that is to come, and no directory can take its place.
void refuse_dangling(const fs::path& target) {
  std::error_code ignored;
  if (!fs::is_symlink(fs::symlink_status(target, ignored))) return;
  throw Error("{}: is a link to {}, which is not there; make that directory or remove the link", target.string(),
              fs::read_symlink(target, ignored).string());
}

}  // namespace

std::optional<std::int64_t> free_bytes_for(const fs::path& target) {
  std::error_code cause;
  fs::path place = fs::absolute(target, cause);
  while (!fs::exists(place, cause) && place.has_relative_path()) place = place.parent_path();
  const fs::space_info space = fs::space(place, cause);
  if (cause || space.capacity == 0) return std::nullopt;  // some file systems do not tell
  return static_cast<std::int64_t>(std::min<std::uintmax_t>(space.available, INT64_MAX));
}

StagingDirectory::StagingDirectory(const fs::path& target) : target_(resolved(target)) {
  target_exists_ = file_exists(target_);
  std::error_code ignored;
  if (!target_exists_) refuse_dangling(target_);
  if (target_exists_ && !fs::is_directory(target_, ignored))
    throw Error("{}: is there and not a directory; choose another name or remove it", target_.string());
  // Inside an existing target, which may be a file system of its own; beside one that is to come.
  const std::string name = fmt::format(".partial-{}", ::getpid());
  path_ = target_exists_ ? target_ / name : fs::path(target_.string() + name);
  try {
    if (!target_exists_) make_parents();
    if (file_exists(path_)) remove_left(path_);
    listed_ = PartialPath(path_);
    make_directory(path_);
  } catch (...) {
    remove_parents();
    throw;
  }
}

StagingDirectory::~StagingDirectory() {
  std::error_code ignored;
  // An empty one goes even where no file can be opened.
  if (!path_.empty() && ::rmdir(path_.c_str()) != 0) fs::remove_all(path_, ignored);
  listed_.release();
  remove_parents();
}

void StagingDirectory::remove_parents() noexcept {
  for (auto parent = made_.rbegin(); parent != made_.rend(); ++parent) ::rmdir(parent->path.c_str());  // not if in use
}

void StagingDirectory::make_parents() {
  std::vector<fs::path> missing;
  for (fs::path parent = target_.parent_path(); !file_exists(parent); parent = parent.parent_path())
    missing.push_back(parent);
  for (auto parent = missing.rbegin(); parent != missing.rend(); ++parent) {
    PartialPath listed(*parent, PartialPath::Directory::if_empty);
    make_directory(*parent);
    made_.push_back({*parent, std::move(listed)});
  }
}

void StagingDirectory::publish(const std::vector<std::string>& names,
                               const std::function<bool(const std::string& name)>& obsolete) {
  sync_directory(path_);
  if (!target_exists_) {
    move(path_, target_);
    listed_.release();
    for (Parent& parent : made_) parent.listed.release();
    path_.clear();
    sync_directory(target_.parent_path());
    return;
  }
  for (const std::string& name : names) move(path_ / name, target_ / name);
  std::error_code cause;
  for (fs::directory_iterator file(target_, cause), end; !cause && file != end; file.increment(cause)) {
    const std::string name = file->path().filename().string();
    if (std::ranges::find(names, name) == names.end() && obsolete(name) && ::unlink(file->path().c_str()) != 0)
      throw Error("cannot remove {}, which is of an older model: {}", file->path().string(), std::strerror(errno));
  }
  if (cause) throw Error("cannot list {}: {}", target_.string(), cause.message());
  sync_directory(target_);
}

}  // namespace zeepo
