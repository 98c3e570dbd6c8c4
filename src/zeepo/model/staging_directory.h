// A fresh directory in which a set of files is completed before any of them takes its place in the target.
//
// A target that is not there yet comes into being whole, by one rename. In one that is there, files are replaced one by
// one, once all of them are complete. Without publish() nothing is left, also by a process that is told to end, and the
// target is as it was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/base/partial_files.h"

namespace zeepo {

// Free in the file system where `target` is or is to come; nothing where that cannot be known.
std::optional<std::int64_t> free_bytes_for(const std::filesystem::path& target);

class StagingDirectory {
 public:
  // Throws Error when files cannot be made there, or cannot take their place later.
  explicit StagingDirectory(const std::filesystem::path& target);
  ~StagingDirectory();
  StagingDirectory(const StagingDirectory&) = delete;
  StagingDirectory& operator=(const StagingDirectory&) = delete;

  // Where files are written meanwhile, in the target's file system.
  const std::filesystem::path& path() const { return path_; }
  // Moves the files of these names into the target in this order, then removes from it those that are `obsolete`.
  void publish(const std::vector<std::string>& names, const std::function<bool(const std::string& name)>& obsolete);

 private:
  void make_parents();
  void remove_parents() noexcept;

  std::filesystem::path target_, path_;
  PartialPath listed_;
  bool target_exists_ = false;
  struct Parent {
    std::filesystem::path path;
    PartialPath listed;
  };
  std::vector<Parent> made_;  // that were not there before, outermost first
};

}  // namespace zeepo
