// Parts of files that others have written: every byte comes to its place, and only whole blocks are asked of the disk.
#include "zeepo/memory/file_parts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "tests/support/errors.h"
#include "tests/support/io_faults.h"
#include "tests/support/test_directory.h"
#include "zeepo/memory/lower_tiers.h"

namespace zeepo {
namespace {

constexpr std::size_t kBlock = kDirectAlignment, kBuffer = SwapTier::kPageBytes;

std::string text_pattern(std::size_t bytes, unsigned seed) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 7 + i / 251 + seed * 31);
  return text;
}

// A file of no whole number of blocks; parts at its start, across blocks, small ones, one of several buffers, its end.
class FilePartsTest : public testing::Test {
 protected:
  FilePartsTest() {
    directory_.write("one", first_);
    directory_.write("two", second_);
  }
  std::vector<FilePart> parts(const StoredFile& one, const StoredFile& two) const {
    std::vector<FilePart> parts;
    std::size_t to = 0;
    const auto add = [&](const StoredFile& file, std::size_t offset, std::size_t bytes, std::size_t gap) {
      parts.push_back({&file, static_cast<std::int64_t>(offset), bytes, to});
      to += bytes + gap;
    };
    add(one, 0, 1, 255);
    add(one, 1, kBlock, 0);
    add(two, 3, 2, 30);
    add(two, kBlock - 1, 2, 30);
    add(one, 4097, 2 * kBuffer + 4321, 100);
    add(one, first_.size() - 5, 5, 0);
    add(two, 0, second_.size(), 0);
    return parts;
  }
  std::string expected(std::span<const FilePart> parts, const StoredFile& one) const {
    std::string bytes(parts.back().to + parts.back().bytes, '.');
    for (const FilePart& part : parts)
      bytes.replace(part.to, part.bytes, (part.file == &one ? first_ : second_), static_cast<std::size_t>(part.offset),
                    part.bytes);
    return bytes;
  }
  LowerTiers::Options options() const {
    return {.host_bytes = 8 << 20,
            .nvme_paths = {directory_.path() / "none"},  // nothing is made there
            .reads_others_files = true,
            .staging_bytes = kBuffer};
  }

  const std::string first_ = text_pattern(3 * kBuffer + 777, 1), second_ = text_pattern(kBlock + 1234, 2);
  const TestDirectory directory_;
  ThreadPool pool_{2};
  CpuStream stream_{pool_};
};

TEST_F(FilePartsTest, LoadsFitTheirBufferAndTakeEveryByteOnce) {
  const StoredFile one(directory_.path() / "one"), two(directory_.path() / "two");
  const auto all = parts(one, two);
  std::size_t wanted = 0, read = 0;
  for (const FileLoad& load : loads_of(all, kBuffer)) {
    std::size_t used = 0;
    for (const FileLoad::Blocks& blocks : load.blocks) {
      EXPECT_EQ(blocks.offset % static_cast<std::int64_t>(kBlock), 0);
      EXPECT_EQ(blocks.bytes % kBlock, 0u);
      EXPECT_EQ(blocks.at, used);
      used += blocks.bytes;
      read += blocks.bytes;
    }
    EXPECT_LE(used, kBuffer);
    for (const FileLoad::Copy& copy : load.copies) wanted += copy.bytes;
  }
  EXPECT_EQ(wanted, wanted_bytes(all));
  EXPECT_GE(read, block_bytes(all));
  EXPECT_LE(read, block_bytes(all) + all.size() * kBlock);
}

TEST_F(FilePartsTest, EveryByteComesToItsPlace) {
  const StoredFile one(directory_.path() / "one"), two(directory_.path() / "two");
  const auto all = parts(one, two);
  for (const IoBackend backend : {IoBackend::automatic, IoBackend::threads}) {
    LowerTiers::Options with = options();
    with.io.backend = backend;
    LowerTiers lower(with, stream_, stream_);
    EXPECT_EQ(lower.nvme()->budget_bytes(), 0u);
    EXPECT_NE(lower.description(), "");
    const std::string wanted = expected(all, one);
    std::string got(wanted.size(), '.');
    lower.to_device(all, got.data(), {"test"}).wait();
    EXPECT_EQ(got, wanted);
    EXPECT_EQ(lower.carried().to_device, static_cast<std::int64_t>(wanted_bytes(all)));
    EXPECT_EQ(lower.carried().read, static_cast<std::int64_t>(block_bytes(all)));
  }
}

TEST_F(FilePartsTest, AFileThatChangesIsNamed) {
  const StoredFile one(directory_.path() / "one"), two(directory_.path() / "two");
  const auto all = parts(one, two);
  std::string got(expected(all, one).size(), '.');
  LowerTiers lower(options(), stream_, stream_);
  lower.to_device(all, got.data(), {"test"}).wait();
  // Another file of the same name is not the one that was opened.
  std::filesystem::rename(directory_.path() / "two", directory_.path() / "old");
  directory_.write("two", "other");
  lower.to_device(all, got.data(), {"test"}).wait();
  EXPECT_EQ(got, expected(all, one));
  std::filesystem::last_write_time(directory_.path() / "one",
                                   std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  Completion up = lower.to_device(all, got.data(), {"test"});
  EXPECT_TRUE(names(error_text([&] { up.wait(); }), "one", "has changed"));
}

// Somebody writes to the file while it is read.
class WrittenTo final : public IoFaults {
 public:
  explicit WrittenTo(std::filesystem::path path) : path_(std::move(path)) {}
  std::size_t ask(const IoCall& call) override { return call.memory.size(); }
  int answer(const IoCall&, int result) override {
    std::filesystem::last_write_time(path_, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
    return result;
  }

 private:
  const std::filesystem::path path_;
};

TEST_F(FilePartsTest, AFileThatChangesWhileItIsReadIsNamed) {
  const StoredFile one(directory_.path() / "one"), two(directory_.path() / "two");
  const auto all = parts(one, two);
  std::string got(expected(all, one).size(), '.');
  WrittenTo faults(directory_.path() / "two");
  LowerTiers::Options watched = options();
  watched.io = {.backend = IoBackend::threads, .threads = 1, .faults = &faults};
  LowerTiers lower(watched, stream_, stream_);
  Completion up = lower.to_device(all, got.data(), {"test"});
  EXPECT_TRUE(names(error_text([&] { up.wait(); }), "two", "has changed"));
}

TEST_F(FilePartsTest, AFailureOfTheDiskIsTheWaiters) {
  const StoredFile one(directory_.path() / "one"), two(directory_.path() / "two");
  const auto all = parts(one, two);
  std::string got(expected(all, one).size(), '.');
  FaultAt faults(IoFault::error, 2);
  LowerTiers::Options faulty = options();
  faulty.io = {.backend = IoBackend::threads, .threads = 1, .faults = &faults};
  LowerTiers lower(faulty, stream_, stream_);
  Completion up = lower.to_device(all, got.data(), {"test"});
  EXPECT_TRUE(names(error_text([&] { up.wait(); }), "cannot read", "Input/output error"));
}

TEST_F(FilePartsTest, WhatCannotBeReadIsNamed) {
  EXPECT_TRUE(names(error_text([&] { StoredFile(directory_.path() / "none"); }), "none", "cannot open"));
  EXPECT_TRUE(names(error_text([&] { StoredFile(directory_.path()); }), "regular file"));
}

}  // namespace
}  // namespace zeepo
