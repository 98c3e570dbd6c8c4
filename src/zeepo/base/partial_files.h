// Names of files and directories that are not complete yet, so that a process which is told to end removes them.
//
// A PartialPath is made before its file, and goes when the file has its final name or has been removed. The table of
// them has a fixed size, since a signal handler reads it; what does not fit is removed by its owner alone.
#pragma once

#include <filesystem>
#include <utility>

namespace zeepo {

class PartialPath {
 public:
  // A directory is removed with what it holds, or only where it is empty.
  enum class Directory { with_contents, if_empty };

  PartialPath() = default;
  explicit PartialPath(const std::filesystem::path& path, Directory directory = Directory::with_contents);
  ~PartialPath() { release(); }
  PartialPath(PartialPath&& other) noexcept : slot_(std::exchange(other.slot_, kNone)) {}
  PartialPath& operator=(PartialPath&& other) noexcept;

  void release() noexcept;

 private:
  static constexpr int kNone = -1;
  int slot_ = kNone;
};

// Removes everything in the table. For the end of a process: from then on the making
// of a PartialPath does not return. Async-signal-safe; any thread may call it.
void remove_partial_files() noexcept;

}  // namespace zeepo
