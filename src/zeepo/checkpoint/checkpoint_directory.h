// The directory that holds a run's checkpoints, one directory each: step-00000100, step-00000200, ...
//
// A checkpoint is written in step-N.partial and appears by one rename, when every byte of it is on the disk. What a run
// that was killed has left half-done is removed by the next run. One run at a time writes into a directory. Where a run
// is evaluated, "best" is a link to the checkpoint with the lowest loss. step-N.superseded is one of another history:
// it was there when a run that had not come so far published its own. Nobody resumes from it, and it stays until the
// run has passed its step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "zeepo/base/partial_files.h"
#include "zeepo/checkpoint/file_operations.h"
#include "zeepo/checkpoint/manifest.h"

namespace zeepo {

struct CheckpointEntry {
  std::int64_t step;
  std::filesystem::path path;
};

// By step. Throws Error when the directory cannot be read; one that is not there has none.
std::vector<CheckpointEntry> list_checkpoints(const std::filesystem::path& directory);
std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);
// The one with the lowest loss of an evaluation: its step, where there is one.
std::optional<std::int64_t> best_checkpoint(const std::filesystem::path& directory);
std::filesystem::path partial_path(const std::filesystem::path& directory, std::int64_t step);

// What stays, now that the checkpoint of step `newest` is published.
struct KeepRule {
  std::int64_t newest;
  std::int64_t count;                            // the newest ones up to that step, it among them
  std::optional<std::int64_t> best = {};         // stays in any case
  std::set<std::filesystem::path> damaged = {};  // names of directories: these count for nothing
};

// For the one rank that keeps the directory in order.
class CheckpointDirectory {
 public:
  // Makes the directory, takes it for this run and removes what earlier ones have left half-done. Throws Error when
  // another run has it, or it cannot be written.
  CheckpointDirectory(FileOperations& operations, std::filesystem::path directory);
  ~CheckpointDirectory();
  CheckpointDirectory(const CheckpointDirectory&) = delete;
  CheckpointDirectory& operator=(const CheckpointDirectory&) = delete;

  // Where the ranks write the checkpoint of this step.
  void begin(std::int64_t step);
  // When every rank's file is on the disk: the manifest, files of the model, and the rename. The lists that the ranks
  // have left become part of the manifest. Files of the model are those of its directory, where there is one, and
  // `further` ones, bytes by name.
  void publish(Manifest manifest, const std::filesystem::path& model,
               const std::map<std::string, std::string>& further = {});
  void abandon(std::int64_t step) noexcept;
  // Removes the oldest beyond the rule's count, never what has just been published. Those of later steps are of another
  // history, or damaged: they are set aside, and their new places returned.
  std::vector<std::filesystem::path> keep(const KeepRule& rule);
  // The checkpoint of this step is found as "best" from now on.
  void name_best(std::int64_t step);

 private:
  void remove_leftovers();
  void remove(const std::filesystem::path& path, std::int64_t step);

  FileOperations& operations_;
  std::filesystem::path directory_;
  int lock_ = -1;
  PartialPath partial_;  // while a checkpoint is being written
};

}  // namespace zeepo
