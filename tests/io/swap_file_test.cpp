#include "zeepo/io/swap_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tests/io/io_test.h"

namespace zeepo {
namespace {

constexpr std::int64_t kFilePage = SwapFile::kPageBytes;

class SwapFileTest : public EachEngine {};

INSTANTIATE_TEST_SUITE_P(Engines, SwapFileTest, testing::Values(IoBackend::uring, IoBackend::threads), engine_name);

AlignedBytes pages(std::int64_t count, std::uint64_t seed) {
  return std::move(AlignedBytes(static_cast<std::size_t>(count * kFilePage)).fill(seed));
}

TEST_P(SwapFileTest, GivesBackWhatWasWrittenOnAnyNumberOfDisks) {
  for (const int disks : {1, 2, 3}) {
    std::vector<std::unique_ptr<IoDirectory>> directories;
    std::vector<std::filesystem::path> paths;
    for (int i = 0; i < disks; ++i) {
      directories.push_back(std::make_unique<IoDirectory>());
      paths.push_back(directories.back()->path());
    }
    const auto io = engine();
    SwapFile swap(*io, paths, 23 * kFilePage - 5);
    EXPECT_EQ(swap.bytes(), 23 * kFilePage);
    // Regions of all lengths, back to back, all in flight at once; then read across their borders.
    std::vector<AlignedBytes> regions;
    std::vector<IoCompletion> writes;
    std::int64_t at = 0;
    for (const std::int64_t length : {1, 9, 2, 5, 6}) {
      regions.push_back(pages(length, static_cast<std::uint64_t>(length)));
      writes.push_back(swap.write(at * kFilePage, regions.back().span()));
      at += length;
    }
    for (auto& write : writes) write.wait();
    AlignedBytes all(static_cast<std::size_t>(23 * kFilePage)), some(static_cast<std::size_t>(7 * kFilePage));
    auto first = swap.read(0, all.span());
    swap.read(3 * kFilePage, some.span()).wait();
    first.wait();
    std::size_t from = 0;
    for (const AlignedBytes& region : regions) {
      EXPECT_EQ(std::memcmp(all.span().data() + from, region.span().data(), region.span().size()), 0);
      from += region.span().size();
    }
    EXPECT_EQ(std::memcmp(all.span().data() + 3 * kFilePage, some.span().data(), some.span().size()), 0);
    EXPECT_EQ(swap.moved().write, 23 * kFilePage);
    EXPECT_EQ(swap.moved().read, 30 * kFilePage);
  }
}

TEST_P(SwapFileTest, WorksOnTmpfs) {
  if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
  const IoDirectory directory("/dev/shm");
  const auto io = engine();
  SwapFile swap(*io, {directory.path()}, 3 * kFilePage);
  const auto written = pages(3, 1);
  swap.write(0, written.span()).wait();
  AlignedBytes read(3 * kFilePage);
  swap.read(0, read.span()).wait();
  EXPECT_TRUE(read == written);
}

TEST_P(SwapFileTest, CannotReadWhatIsNotThere) {
  const IoDirectory directory;
  const auto io = engine();
  SwapFile swap(*io, {directory.path()}, 4 * kFilePage);
  const auto memory = pages(2, 1);
  const std::string where = "cannot read the swap file in " + directory.path().string() + ": 262144 bytes at offset ";
  EXPECT_EQ(error_text([&] { swap.read(0, memory.span()).wait(); }), where + "0: it was never written");
  auto write = swap.write(kFilePage, memory.span());
  EXPECT_EQ(error_text([&] { swap.read(kFilePage, memory.span()).wait(); }),
            where + "262144: it is still being written; wait for that first");
  EXPECT_TRUE(names(error_text([&] { swap.write(2 * kFilePage, memory.span()).wait(); }), "in flight; wait for it"));
  write.wait();
  swap.read(kFilePage, memory.span()).wait();
}

TEST_P(SwapFileTest, RefusesWhatIsNotWholeAlignedPages) {
  const IoDirectory directory;
  const auto io = engine();
  SwapFile swap(*io, {directory.path()}, 4 * kFilePage);
  const auto memory = pages(5, 1);
  const auto text = [&](std::int64_t offset, std::span<std::byte> span) {
    const std::string written = error_text([&] { swap.write(offset, span).wait(); });
    EXPECT_EQ(error_text([&] { swap.read(offset, span).wait(); }), "swap file: read" + written.substr(16));
    return written;
  };
  const auto page = memory.span().first(kFilePage);
  EXPECT_TRUE(names(text(4096, page), "multiples of the page"));
  EXPECT_TRUE(names(text(-kFilePage, page), "multiples of the page"));
  EXPECT_TRUE(names(text(0, page.first(4096)), "multiples of the page"));
  EXPECT_TRUE(names(text(0, memory.span()), "it has 1048576 bytes"));
  EXPECT_TRUE(names(text(4 * kFilePage, page), "it has 1048576 bytes"));
  EXPECT_TRUE(names(text(0, memory.span().subspan(512, kFilePage)), "aligned to 4096"));
}

TEST(SwapFile, LeavesNoNameBehind) {
  const IoDirectory directory;
  const auto io = make_io_engine();
  const SwapFile swap(*io, {directory.path()}, kFilePage);
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SwapFile, IsItsOwnersAndHasItsBlocks) {
  const IoDirectory directory;
  const UnnamedFile file(directory.path(), 8 << 20, "it");
  struct stat status {};
  ASSERT_EQ(::fstat(file.file().descriptor, &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600);
  EXPECT_EQ(status.st_nlink, 0U);
  EXPECT_EQ(status.st_size, 8 << 20);
  EXPECT_GE(status.st_blocks * 512, 8 << 20);
  const int flags = ::fcntl(file.file().descriptor, F_GETFL);
  EXPECT_EQ((flags & O_DIRECT) != 0, file.file().direct);
  EXPECT_EQ(file.why_buffered().empty(), file.file().direct);
}

TEST(SwapFile, AFullDiskIsAnErrorBeforeAnyWork) {
  const IoDirectory directory;
  struct statvfs status {};
  ASSERT_EQ(::statvfs(directory.path().c_str(), &status), 0);
  const auto disk = static_cast<std::int64_t>(status.f_blocks * status.f_frsize);
  const auto io = make_io_engine();
  const std::int64_t asked = SwapFile::round_up(2 * disk);
  const std::string text = error_text([&] { SwapFile(*io, {directory.path()}, asked); });
  EXPECT_TRUE(names(text, fmt::format("({} bytes) in {}: ", asked, directory.path().string()))) << text;
  EXPECT_TRUE(names(text, "are free; name a directory on another disk")) << text;
}

TEST(SwapFile, RefusesDirectoriesThatDoNotExistAndSizesOfNothing) {
  const IoDirectory directory;
  const auto io = make_io_engine();
  EXPECT_TRUE(names(error_text([&] { SwapFile(*io, {}, kFilePage); }), "--nvme-path"));
  EXPECT_TRUE(names(error_text([&] { SwapFile(*io, {directory.path()}, 0); }), "at least 1"));
  EXPECT_TRUE(names(error_text([&] { SwapFile(*io, {directory.path() / "no"}, kFilePage); }), "/no: No such file"));
}

TEST(SwapFile, DescribesItself) {
  const IoDirectory a, b;
  const auto io = make_io_engine({.backend = IoBackend::threads, .threads = 2});
  const std::string one = SwapFile(*io, {a.path()}, kFilePage).description();
  EXPECT_EQ(one.find("1 file under " + a.path().string() + "; 2 threads (asked for); "), 0U) << one;
  EXPECT_TRUE(names(one, "O_DIRECT")) << one;
  const std::string two = SwapFile(*io, {a.path(), b.path()}, kFilePage).description();
  EXPECT_EQ(two.find("2 files under " + a.path().string() + ", " + b.path().string() + "; "), 0U) << two;
}

TEST(WriteZeros, AllocatesOrSaysThatTheDiskIsFull) {
  const IoDirectory directory;
  const int file = ::open((directory.path() / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  write_zeros(file, (3 << 20) + 5, directory.path());
  struct stat status {};
  ASSERT_EQ(::fstat(file, &status), 0);
  EXPECT_EQ(status.st_size, (3 << 20) + 5);
  EXPECT_GE(status.st_blocks * 512, 3 << 20);
  ::close(file);
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  EXPECT_TRUE(names(error_text([&] { write_zeros(full, 100, directory.path()); }), "no room for a swap file"));
  ::close(full);
}

}  // namespace
}  // namespace zeepo
