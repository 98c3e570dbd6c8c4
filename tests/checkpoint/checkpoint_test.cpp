// What was saved comes back; any byte that changes is found; a save that fails at any place leaves the one before it.
#include "zeepo/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <fstream>
#include <map>
#include <random>
#include <set>

#include "tests/checkpoint/saved.h"
#include "tests/support/errors.h"
#include "zeepo/checkpoint/sealed_json.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

class Checkpoints : public testing::Test {
 protected:
  fs::path saved(std::int64_t step) {
    save(operations_, directory(), model_, step);
    return checkpoint_path(directory(), step);
  }
  fs::path directory() const { return files_.path() / "checkpoints"; }

  TestDirectory files_;
  fs::path model_ = model_in(files_);
  FileOperations operations_;
};

std::vector<fs::path> files_below(const fs::path& path) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

TEST_F(Checkpoints, ComeBackWhole) {
  expect_whole(saved(3));
  EXPECT_EQ(files_below(checkpoint_path(directory(), 3)).size(), 5u);  // two ranks, the manifest, two of the model
}

TEST(Manifests, EveryFieldComesBack) {
  Manifest was;
  was.step = 70;
  was.samples = std::int64_t{1} << 50;
  was.loss = 0.1 + 0.2;
  was.eval_loss = 1.0 / 3;
  was.best = {60, 1.0 / 7};
  was.progress = {65, {0.125f, 11, -1, 3}};
  was.depths = {(std::int64_t{1} << 33) + 1, 5, 1.0 / 9};
  was.ranks = 4;
  was.nodes = {0, 0, 1, 1};
  was.balance = {{1, 0.35, 0.05, 1.0 / 3}, {9, 4, 1, 2}};
  was.moments = 2;
  was.dtype = "fp16";
  was.options = {{"--lr", "0.1"}, {"--freeze", "*\"\\\n*"}};
  was.origin = {{"config.json", "0123456789abcdef"}};
  was.weights = {{"one", {3, 0, 2}}, {"two", {}}};
  was.files = {{"rank-00000.safetensors", 123, "feed", {{"one[0:6]", "beef"}, {"one[0:6].moment1", "cafe"}}}};
  was.model_files = {{"config.json", 7, "dead"}};
  const Manifest is = parse_manifest(text_of(was), "manifest");
  EXPECT_EQ(is.step, was.step);
  EXPECT_EQ(is.samples, was.samples);
  EXPECT_EQ(is.loss, was.loss);
  EXPECT_EQ(is.eval_loss, was.eval_loss);
  ASSERT_TRUE(is.best);
  EXPECT_EQ(is.best->step, was.best->step);
  EXPECT_EQ(is.best->loss, was.best->loss);
  EXPECT_EQ(is.progress.steps_taken, was.progress.steps_taken);
  const LossScale::State &scale = is.progress.loss_scale, &scale_was = was.progress.loss_scale;
  EXPECT_EQ(scale.scale, scale_was.scale);
  EXPECT_EQ(scale.good_steps, scale_was.good_steps);
  EXPECT_EQ(scale.overflows_left, scale_was.overflows_left);
  EXPECT_EQ(scale.in_a_row, scale_was.in_a_row);
  EXPECT_EQ(is.depths.prefetch_bytes, was.depths.prefetch_bytes);
  EXPECT_EQ(is.depths.pieces_under_way, was.depths.pieces_under_way);
  EXPECT_EQ(is.depths.host_share, was.depths.host_share);
  EXPECT_EQ(is.ranks, was.ranks);
  EXPECT_EQ(is.nodes, was.nodes);
  EXPECT_EQ(is.balance.speeds, was.balance.speeds);
  EXPECT_EQ(is.balance.rows, was.balance.rows);
  EXPECT_EQ(is.moments, was.moments);
  EXPECT_EQ(is.dtype, was.dtype);
  EXPECT_EQ(is.options, was.options);
  EXPECT_EQ(is.origin, was.origin);
  ASSERT_EQ(is.weights.size(), was.weights.size());
  for (std::size_t i = 0; i < is.weights.size(); ++i) {
    EXPECT_EQ(is.weights[i].name, was.weights[i].name);
    EXPECT_EQ(is.weights[i].shape, was.weights[i].shape);
  }
  ASSERT_EQ(is.files.size(), 1u);
  EXPECT_EQ(is.files[0].name, was.files[0].name);
  EXPECT_EQ(is.files[0].bytes, was.files[0].bytes);
  EXPECT_EQ(is.files[0].header, was.files[0].header);
  EXPECT_EQ(is.files[0].tensors, was.files[0].tensors);
  ASSERT_EQ(is.model_files.size(), 1u);
  EXPECT_EQ(is.model_files[0].name, was.model_files[0].name);
  EXPECT_EQ(is.model_files[0].bytes, was.model_files[0].bytes);
  EXPECT_EQ(is.model_files[0].checksum, was.model_files[0].checksum);
}

// Checkpoints of earlier programs can be read.
TEST(Manifests, LayoutAndSharesMayBeMissing) {
  Manifest manifest;
  manifest.step = 1;
  nlohmann::ordered_json object = nlohmann::ordered_json::parse(text_of(manifest));
  for (const char* field : {"checksum", "nodes", "balance"}) EXPECT_EQ(object.erase(field), 1u);
  const Manifest read = parse_manifest(seal(object), "manifest");
  EXPECT_TRUE(read.nodes.empty() && read.balance.speeds.empty() && read.balance.rows.empty());
}

TEST(Manifests, ALossThatIsNotANumberStaysOne) {
  Manifest manifest;
  manifest.step = 1;
  manifest.loss = std::nan("");
  EXPECT_TRUE(std::isnan(parse_manifest(text_of(manifest), "manifest").loss));
}

TEST_F(Checkpoints, AProcessThatIsToldToEndLeavesNoneHalfDone) {
  const fs::path whole = saved(1);
  CheckpointDirectory begun(operations_, directory());
  begun.begin(2);
  std::ofstream(partial_path(directory(), 2) / RankFile::name(0)) << "half of it";
  EXPECT_EXIT(
      {
        remove_partial_files();
        _exit(7);
      },
      testing::ExitedWithCode(7), "");
  EXPECT_FALSE(fs::exists(partial_path(directory(), 2)));
  expect_whole(whole);
}

TEST_F(Checkpoints, AnyFlippedByteIsFound) {
  const fs::path path = saved(1);
  std::mt19937 random(std::random_device{}());
  for (const fs::path& file : files_below(path)) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const auto size = static_cast<std::int64_t>(fs::file_size(file));
    std::vector<std::int64_t> offsets;
    for (std::int64_t at = 0; at < std::min<std::int64_t>(size, 64); ++at) offsets.push_back(at);
    for (int i = 0; i < 150; ++i) offsets.push_back(static_cast<std::int64_t>(random()) % size);
    offsets.push_back(size - 1);
    for (const std::int64_t at : offsets) {
      const char was = static_cast<char>(bytes.seekg(at).get());
      const char is = static_cast<char>(was ^ (1 << random() % 8));
      bytes.seekp(at).put(is).flush();
      EXPECT_TRUE(names(error_text([&] { Checkpoint(path).verify(); }), path.string())) << file << " at " << at;
      bytes.seekp(at).put(was).flush();
    }
  }
  expect_whole(path);
}

TEST_F(Checkpoints, AnyCutOrMissingFileIsFound) {
  for (const bool gone : {false, true}) {
    const fs::path path = saved(1);
    for (const fs::path& file : files_below(path)) {
      const fs::path copy = files_.path() / "copy";
      fs::copy_file(file, copy, fs::copy_options::overwrite_existing);
      for (const std::uintmax_t bytes : {fs::file_size(file) - 1, fs::file_size(file) / 2, std::uintmax_t{0}}) {
        if (gone)
          fs::remove(file);
        else
          fs::resize_file(file, bytes);
        EXPECT_FALSE(error_text([&] { Checkpoint(path).verify(); }).empty()) << file << " with " << bytes;
        fs::copy_file(copy, file, fs::copy_options::overwrite_existing);
      }
    }
    expect_whole(path);
  }
}

TEST_F(Checkpoints, FaultsNameFileAndTensor) {
  const fs::path path = saved(1);
  const fs::path file = path / RankFile::name(1);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(-1, std::ios::end).put('\x7f');
  EXPECT_TRUE(names(error_text([&] { Checkpoint(path).verify(); }), "rank-00001.safetensors", "fixed[20:40]"));
}

// Fails the n-th operation, in one of several ways; afterwards, as if the machine had stopped, all others.
class Failing final : public FileOperations {
 public:
  enum class How { refused, full, short_write, stopped };
  Failing(int at, How how) : at_(at), how_(how) {}

  int make_directory(const char* path) override { return fails() ? -1 : FileOperations::make_directory(path); }
  int create(const char* path) override { return fails() ? -1 : FileOperations::create(path); }
  int allocate(int file, std::int64_t bytes) override { return fails() ? -1 : FileOperations::allocate(file, bytes); }
  ssize_t write(int file, std::span<const std::byte> bytes, std::int64_t offset) override {
    if (!fails()) return FileOperations::write(file, bytes, offset);
    if (how_ == How::short_write && bytes.size() > 1) return FileOperations::write(file, bytes.first(1), offset);
    return -1;
  }
  int sync(int file) override { return fails() ? -1 : FileOperations::sync(file); }
  int sync_directory(const char* path) override { return fails() ? -1 : FileOperations::sync_directory(path); }
  int rename(const char* from, const char* to) override { return fails() ? -1 : FileOperations::rename(from, to); }

  bool reached() const { return count_ > at_; }

 private:
  bool fails() {
    const int number = count_++;
    errno = how_ == How::full ? ENOSPC : EIO;
    return number == at_ || (how_ == How::stopped && number > at_);
  }
  int at_, count_ = 0;
  How how_;
};

TEST_F(Checkpoints, AFaultOfAnyOperationLeavesTheOneBefore) {
  using How = Failing::How;
  saved(1);
  for (const How how : {How::refused, How::full, How::short_write, How::stopped}) {
    for (int at = 0;; ++at) {
      Failing failing(at, how);
      bool threw = false;
      try {
        save(failing, directory(), model_, 2);
      } catch (const Error&) {
        threw = true;
      }
      if (!failing.reached()) break;  // all of them have had their turn
      ASSERT_LT(at, 100);
      const auto found = list_checkpoints(directory());
      ASSERT_FALSE(found.empty());
      for (const auto& entry : found) expect_whole(entry.path);
      EXPECT_EQ(found.front().step, 1);
      EXPECT_TRUE(threw || found.size() == 2) << "operation " << at;  // a short write is completed
      fs::remove_all(checkpoint_path(directory(), 2));
    }
  }
  saved(2);  // what was left half-done is in nobody's way
  EXPECT_EQ(list_checkpoints(directory()).size(), 2u);
  for (const auto& entry : fs::directory_iterator(directory()))
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
}

TEST_F(Checkpoints, AFaultOfAnyOperationLeavesTheOneThatIsReplaced) {
  using How = Failing::How;
  saved(1);
  saved(2);
  for (const How how : {How::refused, How::full, How::short_write, How::stopped}) {
    for (int at = 0;; ++at) {
      Failing failing(at, how);
      try {
        save(failing, directory(), model_, 2);
      } catch (const Error&) {
      }
      if (!failing.reached()) break;
      ASSERT_LT(at, 100);
      const CheckpointDirectory next(operations_, directory());  // as the next run: what was moved aside comes back
      const auto found = list_checkpoints(directory());
      ASSERT_EQ(found.size(), 2u) << "operation " << at;
      for (const auto& entry : found) expect_whole(entry.path);
      for (const auto& entry : fs::directory_iterator(directory()))
        EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
    }
  }
}

// Knows what a loss of power would take: bytes of files and names in directories that are not on the disk.
class Watching final : public FileOperations {
 public:
  int make_directory(const char* path) override {
    change_in(fs::path(path).parent_path());
    change_in(path);
    return FileOperations::make_directory(path);
  }
  int create(const char* path) override {
    const int file = FileOperations::create(path);
    paths_[file] = path;
    change_in(fs::path(path).parent_path());
    changed_.insert(path);
    return file;
  }
  int allocate(int file, std::int64_t bytes) override {
    changed_.insert(paths_.at(file));
    return FileOperations::allocate(file, bytes);
  }
  ssize_t write(int file, std::span<const std::byte> bytes, std::int64_t offset) override {
    changed_.insert(paths_.at(file));
    return FileOperations::write(file, bytes, offset);
  }
  int sync(int file) override {
    changed_.erase(paths_.at(file));
    ++syncs_;
    return FileOperations::sync(file);
  }
  int sync_directory(const char* path) override {
    changed_.erase(path);
    ++syncs_;
    return FileOperations::sync_directory(path);
  }
  int rename(const char* from, const char* to) override {
    const fs::path moved = from;
    for (const fs::path& path : changed_)
      EXPECT_NE(std::mismatch(moved.begin(), moved.end(), path.begin(), path.end()).first, moved.end())
          << path << " is not on the disk when " << moved << " is renamed";
    change_in(fs::path(to).parent_path());
    return FileOperations::rename(from, to);
  }

  // What is there, and would be lost.
  std::set<fs::path> changed() const {
    std::set<fs::path> there = changed_;
    std::erase_if(there, [](const fs::path& path) { return !fs::exists(path); });
    return there;
  }
  int syncs() const { return syncs_; }

 private:
  void change_in(const fs::path& directory) { changed_.insert(directory); }

  std::map<int, fs::path> paths_;
  std::set<fs::path> changed_;  // and not on the disk
  int syncs_ = 0;
};

TEST_F(Checkpoints, AreOnTheDiskBeforeTheyAppear) {
  for (int round = 0; round < 2; ++round) {  // the second replaces the first
    Watching watching;
    save(watching, directory(), model_, 3);
    EXPECT_EQ(watching.changed(), std::set<fs::path>());
    CheckpointDirectory(watching, directory()).name_best(3);
    EXPECT_EQ(watching.changed(), std::set<fs::path>());
    EXPECT_GE(watching.syncs(), 11);  // two ranks' files and lists, two of the model, the manifest, four directories
  }
}

TEST_F(Checkpoints, AStepIsReplacedByItsNewer) {
  saved(4);
  expect_whole(saved(4));
  EXPECT_EQ(list_checkpoints(directory()).size(), 1u);
}

std::vector<std::int64_t> steps_in(const fs::path& directory) {
  std::vector<std::int64_t> steps;
  for (const auto& entry : list_checkpoints(directory)) steps.push_back(entry.step);
  return steps;
}

TEST_F(Checkpoints, TheNewestStay) {
  using Steps = std::vector<std::int64_t>;
  for (const std::int64_t step : {10, 20, 30, 40, 100}) saved(step);
  CheckpointDirectory checkpoints(operations_, directory());
  EXPECT_TRUE(checkpoints.keep({.newest = 100, .count = 3, .best = 10}).empty());
  EXPECT_EQ(steps_in(directory()), (Steps{10, 30, 40, 100}));
  checkpoints.keep({.newest = 100, .count = 2});
  EXPECT_EQ(steps_in(directory()), (Steps{40, 100}));
  checkpoints.keep({.newest = 100, .count = 0});
  EXPECT_EQ(steps_in(directory()), (Steps{100}));
}

// As after a resume that passed over damaged ones, or in the directory of a run that came further.
TEST_F(Checkpoints, ThoseOfLaterStepsGiveWayAndAreNotLost) {
  using Steps = std::vector<std::int64_t>;
  for (const std::int64_t step : {10, 20, 90, 100}) saved(step);
  saved(30);
  const auto keep = [&](std::int64_t newest) {
    return CheckpointDirectory(operations_, directory()).keep({.newest = newest, .count = 1});
  };
  const auto aside = keep(30);
  EXPECT_EQ(steps_in(directory()), (Steps{30}));
  ASSERT_EQ(aside.size(), 2u);
  for (const fs::path& path : aside) expect_whole(path);
  saved(95);
  EXPECT_TRUE(keep(95).empty());
  EXPECT_EQ(steps_in(directory()), (Steps{95}));
  EXPECT_FALSE(fs::exists(aside[0]));  // of step 90
  expect_whole(aside[1]);
}

TEST_F(Checkpoints, DamagedOnesDoNotCount) {
  for (const std::int64_t step : {10, 20, 30, 40}) saved(step);
  CheckpointDirectory checkpoints(operations_, directory());
  checkpoints.keep({.newest = 40, .count = 2, .damaged = {"step-00000030", "step-00000040"}});
  EXPECT_EQ(steps_in(directory()), (std::vector<std::int64_t>{20, 40}));  // 40 has just been written anew
}

TEST_F(Checkpoints, OneRunAtATimeHasADirectory) {
  const CheckpointDirectory first(operations_, directory());
  EXPECT_TRUE(
      names(error_text([&] { CheckpointDirectory(operations_, directory()); }), directory().string(), "another run"));
}

TEST_F(Checkpoints, AreNotReadFromElsewhere) {
  const fs::path path = saved(1);
  Manifest manifest = parse_manifest(read_text(path / kManifestName), "m");
  manifest.files[0].name = "../../etc/passwd";
  EXPECT_TRUE(names(error_text([&] { parse_manifest(text_of(manifest), "m"); }), "leads out"));
  EXPECT_TRUE(names(error_text([&] { Checkpoint(files_.path()); }), "not a checkpoint"));
}

}  // namespace
}  // namespace zeepo
