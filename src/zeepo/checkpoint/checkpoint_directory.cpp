#include "zeepo/checkpoint/checkpoint_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/checkpoint/rank_file.h"
#include "zeepo/checkpoint/sealed_json.h"
#include "zeepo/model/model_directory.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-", kPartial = ".partial", kReplaced = ".replaced.partial";
constexpr std::string_view kSuperseded = ".superseded";
constexpr std::string_view kBest = "best";
constexpr std::int64_t kMaxListBytes = std::int64_t{1} << 30, kMaxModelFileBytes = std::int64_t{1} << 28;

std::string name_of_step(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

// Nothing where the name is not that of a checkpoint.
std::int64_t step_in(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  name.remove_prefix(kPrefix.size());
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  return error == std::errc{} && end == name.data() + name.size() ? step : -1;
}

// Those whose names end in `suffix` behind the step, by step.
std::vector<CheckpointEntry> entries_of(const fs::path& directory, std::string_view suffix) {
  std::vector<CheckpointEntry> found;
  if (!file_exists(directory)) return found;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    std::string name = it->path().filename().string();
    if (!name.ends_with(suffix)) continue;
    name.resize(name.size() - suffix.size());
    if (const std::int64_t step = step_in(name); step > 0) found.push_back({step, it->path()});
  }
  if (error) throw Error("{}: cannot be read: {}", directory.string(), error.message());
  std::ranges::sort(found, {}, &CheckpointEntry::step);
  return found;
}

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw Error("{}: {}: {}", path.string(), what, std::strerror(errno));
}

}  // namespace

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) { return directory / name_of_step(step); }
fs::path partial_path(const fs::path& directory, std::int64_t step) {
  return directory / (name_of_step(step) + std::string(kPartial));
}

std::optional<std::int64_t> best_checkpoint(const fs::path& directory) {
  std::error_code error;
  const std::int64_t step = step_in(fs::read_symlink(directory / kBest, error).string());
  if (error || step <= 0 || !file_exists(checkpoint_path(directory, step))) return std::nullopt;
  return step;
}

std::vector<CheckpointEntry> list_checkpoints(const fs::path& directory) { return entries_of(directory, ""); }

CheckpointDirectory::CheckpointDirectory(FileOperations& operations, fs::path directory)
    : operations_(operations), directory_(std::move(directory)) {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) throw Error("--checkpoint-dir {}: cannot be made: {}", directory_.string(), error.message());
  lock_ = ::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock_ < 0) fail(directory_, "cannot be opened");
  // A file system without locks is used without.
  if (::flock(lock_, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK) {
    ::close(lock_);
    throw Error("--checkpoint-dir {}: another run writes its checkpoints there; end it, or name another directory",
                directory_.string());
  }
  try {
    remove_leftovers();
    const fs::path trial = directory_ / ("trial" + std::string(kPartial));
    if (operations_.make_directory(trial.c_str()) < 0) fail(directory_, "cannot be written");
    fs::remove(trial);
  } catch (...) {
    ::close(lock_);
    throw;
  }
}

CheckpointDirectory::~CheckpointDirectory() { ::close(lock_); }

void CheckpointDirectory::remove_leftovers() {
  std::vector<fs::path> left;
  for (const auto& entry : fs::directory_iterator(directory_)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(kPartial) && (name.starts_with(kPrefix) || name.starts_with("trial") || name.starts_with(kBest)))
      left.push_back(entry.path());
  }
  for (const fs::path& path : left) {
    // A checkpoint that was moved aside for a newer one of the same step, which then did not come.
    const std::string name = path.filename().string();
    if (name.ends_with(kReplaced)) {
      const fs::path whole = directory_ / name.substr(0, name.size() - kReplaced.size());
      if (!fs::exists(whole)) {
        fs::rename(path, whole);
        continue;
      }
    }
    fs::remove_all(path);
  }
}

void CheckpointDirectory::begin(std::int64_t step) {
  const fs::path partial = partial_path(directory_, step);
  fs::remove_all(partial);
  partial_ = PartialPath(partial);
  if (operations_.make_directory(partial.c_str()) < 0) fail(partial, "cannot be made");
}

void CheckpointDirectory::publish(Manifest manifest, const fs::path& model,
                                  const std::map<std::string, std::string>& further) {
  const fs::path partial = partial_path(directory_, manifest.step), whole = checkpoint_path(directory_, manifest.step);
  for (int rank = 0; rank < manifest.ranks; ++rank) {
    const fs::path list = partial / RankFile::list_name(rank);
    if (!file_exists(list))
      throw Error("{}: rank {}'s file is not there; --checkpoint-dir must be in a file system that all hosts share",
                  list.string(), rank);
    manifest.files.push_back(parse_file_list(read_text(list, kMaxListBytes), list.string()));
  }
  const fs::path folder = partial / kModelFolder;
  if (operations_.make_directory(folder.c_str()) < 0) fail(folder, "cannot be made");
  const auto add = [&](const std::string& name, const std::string& text) {
    save_text(operations_, folder / name, text);
    manifest.model_files.push_back(
        {name, static_cast<std::int64_t>(text.size()), checksum_of(std::as_bytes(std::span(text)))});
  };
  const auto names = model.empty() ? std::vector<std::string>() : model_side_files(model);
  for (const std::string& name : names) add(name, read_text(model / name, kMaxModelFileBytes));
  for (const auto& [name, text] : further) add(name, text);
  save_text(operations_, partial / kManifestName, text_of(manifest));
  for (int rank = 0; rank < manifest.ranks; ++rank) fs::remove(partial / RankFile::list_name(rank));
  for (const fs::path& path : {folder, partial})
    if (operations_.sync_directory(path.c_str()) < 0) fail(path, "cannot be brought to the disk");
  const fs::path replaced = directory_ / (whole.filename().string() + std::string(kReplaced));
  const bool replaces = fs::exists(whole);
  if (replaces && operations_.rename(whole.c_str(), replaced.c_str()) < 0) fail(whole, "cannot be moved aside");
  if (operations_.rename(partial.c_str(), whole.c_str()) < 0) {
    const int cause = errno;
    if (replaces && operations_.rename(replaced.c_str(), whole.c_str()) < 0)
      fail(replaced, "cannot be moved back, which the next run does");
    errno = cause;
    fail(whole, "cannot be moved into place");
  }
  partial_.release();
  if (operations_.sync_directory(directory_.c_str()) < 0) fail(directory_, "cannot be brought to the disk");
  if (replaces) fs::remove_all(replaced);
}

void CheckpointDirectory::abandon(std::int64_t step) noexcept {
  std::error_code ignored;  // the next run removes what is left
  fs::remove_all(partial_path(directory_, step), ignored);
  partial_.release();
}

// Under another name first: what is half removed must not look whole.
void CheckpointDirectory::remove(const fs::path& path, std::int64_t step) {
  const fs::path leaving = partial_path(directory_, step);
  fs::remove_all(leaving);
  fs::rename(path, leaving);
  fs::remove_all(leaving);
}

std::vector<fs::path> CheckpointDirectory::keep(const KeepRule& rule) {
  std::vector<fs::path> aside;
  std::vector<CheckpointEntry> counted;
  for (const CheckpointEntry& entry : list_checkpoints(directory_)) {
    if (entry.step > rule.newest) {
      const fs::path place = entry.path.string() + std::string(kSuperseded);
      if (fs::exists(place)) remove(place, entry.step);
      fs::rename(entry.path, place);
      aside.push_back(place);
    } else if (entry.step < rule.newest && rule.damaged.contains(entry.path.filename())) {
      remove(entry.path, entry.step);
    } else {
      counted.push_back(entry);
    }
  }
  const auto kept = static_cast<std::size_t>(std::max<std::int64_t>(rule.count, 1));
  for (std::size_t i = 0; i + kept < counted.size(); ++i)
    if (counted[i].step != rule.best) remove(counted[i].path, counted[i].step);
  for (const auto& [step, path] : entries_of(directory_, kSuperseded))
    if (step <= rule.newest) remove(path, step);
  return aside;
}

void CheckpointDirectory::name_best(std::int64_t step) {
  const fs::path link = directory_ / kBest, fresh = directory_ / (std::string(kBest) + std::string(kPartial));
  std::error_code error;
  fs::remove(fresh, error);
  fs::create_symlink(name_of_step(step), fresh, error);
  if (error) throw Error("{}: cannot be made: {}", fresh.string(), error.message());
  if (operations_.rename(fresh.c_str(), link.c_str()) < 0) fail(link, "cannot be moved into place");
  if (operations_.sync_directory(directory_.c_str()) < 0) fail(directory_, "cannot be brought to the disk");
}

}  // namespace zeepo
