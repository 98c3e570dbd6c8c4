#include "zeepo/base/partial_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <climits>
#include <cstring>
#include <ctime>
#include <string>

namespace zeepo {
namespace {

enum class Slot { free, being_filled, used };
struct Entry {
  std::atomic<Slot> slot{Slot::free};
  PartialPath::Directory directory = PartialPath::Directory::with_contents;
  char path[PATH_MAX] = {};
};
static_assert(std::atomic<Slot>::is_always_lock_free);

std::array<Entry, 32> entries;  // static memory: a signal may come before or after any other object's life
std::atomic<bool> ending{false};

constexpr int kMostDepth = 4;

// Only system calls: no memory is taken.
void remove_contents(int directory, int depth) noexcept {
  alignas(dirent64) char buffer[2048];
  ssize_t bytes = 0;
  while ((bytes = ::getdents64(directory, buffer, sizeof buffer)) > 0)
    for (ssize_t at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(buffer + at);
      at += entry->d_reclen;
      const char* name = entry->d_name;
      if (std::strcmp(name, ".") == 0 || std::strcmp(name, "..") == 0) continue;
      if (::unlinkat(directory, name, 0) == 0 || depth == kMostDepth) continue;
      const int inner = ::openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      if (inner < 0) continue;
      remove_contents(inner, depth + 1);
      ::close(inner);
      ::unlinkat(directory, name, AT_REMOVEDIR);
    }
}

void remove_entry(const Entry& entry) noexcept {
  const char* path = entry.path;
  if (entry.directory == PartialPath::Directory::if_empty) {
    ::rmdir(path);
    return;
  }
  if (::unlink(path) == 0) return;
  const int directory = ::open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  // Another thread may still be making files there.
  for (int tries = 0; tries < 10; ++tries) {
    ::lseek(directory, 0, SEEK_SET);
    remove_contents(directory, 0);
    if (::rmdir(path) == 0) break;
  }
  ::close(directory);
}

// What lies in a directory of the table was listed after it, as a rule.
void remove_all() noexcept {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)
    if (entry->slot.load(std::memory_order_acquire) == Slot::used) remove_entry(*entry);
}

}  // namespace

PartialPath::PartialPath(const std::filesystem::path& path, Directory directory) {
  std::error_code unknown;
  const std::string text = std::filesystem::absolute(path, unknown).string();
  if (unknown || text.size() >= PATH_MAX) return;
  for (std::size_t i = 0; i < entries.size() && slot_ == kNone; ++i) {
    Slot free = Slot::free;
    if (!entries[i].slot.compare_exchange_strong(free, Slot::being_filled)) continue;
    std::memcpy(entries[i].path, text.c_str(), text.size() + 1);
    entries[i].directory = directory;
    entries[i].slot = Slot::used;
    slot_ = static_cast<int>(i);
  }
  while (ending) ::pause();  // nobody would remove what is made from now on
}

PartialPath& PartialPath::operator=(PartialPath&& other) noexcept {
  if (this == &other) return *this;
  release();
  slot_ = std::exchange(other.slot_, kNone);
  return *this;
}

void PartialPath::release() noexcept {
  if (slot_ == kNone) return;
  entries[static_cast<std::size_t>(std::exchange(slot_, kNone))].slot = Slot::free;
}

void remove_partial_files() noexcept {
  ending = true;
  remove_all();
  // A file whose name was in the table before it was made.
  const timespec moment{0, 10'000'000};
  ::nanosleep(&moment, nullptr);
  remove_all();
}

}  // namespace zeepo
