#include "zeepo/base/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <functional>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

class FileTest : public testing::Test {
 private:
  const TestDirectory scratch_;

 protected:
  fs::path path(const char* name) const { return directory_ / name; }
  std::set<std::string> names() const {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(directory_)) found.insert(entry.path().filename().string());
    return found;
  }

  const fs::path& directory_ = scratch_.path();
};

void write_text(const fs::path& path, std::string_view text) {
  OutputFile file(path);
  file.write(text);
  file.commit();
}

TEST_F(FileTest, ComesBackAsWritten) {
  std::string text(100'000, 'x');
  text[0] = '\0';
  text[99'999] = '\xff';
  OutputFile file(path("a"));
  file.write(std::string_view(text).substr(0, 7));
  file.write(std::string_view(text).substr(7));
  EXPECT_EQ(file.path(), path("a"));
  file.commit();
  EXPECT_EQ(read_text(path("a")), text);
  EXPECT_EQ(InputFile(path("a")).bytes(), 100'000);
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, AppearsOnlyWhenCommitted) {
  write_text(path("a"), "old");
  {
    OutputFile file(path("a"));
    file.write(std::string_view("new and longer"));
    EXPECT_EQ(read_text(path("a")), "old");
    OutputFile moved(std::move(file));
    EXPECT_EQ(names().size(), 2u);
  }
  EXPECT_EQ(read_text(path("a")), "old");
  EXPECT_EQ(names(), std::set<std::string>{"a"}) << "nothing partial is left";
  write_text(path("a"), "new");
  EXPECT_EQ(read_text(path("a")), "new");
  EXPECT_EQ(names(), std::set<std::string>{"a"});
}

TEST_F(FileTest, LeavesNothingAfterAnException) {
  EXPECT_THROW(
      {
        OutputFile file(path("a"));
        file.write(std::string_view("half of it"));
        throw Error("the disk is on fire");
      },
      Error);
  EXPECT_TRUE(names().empty());
}

TEST_F(FileTest, FailedCommitLeavesNothing) {
  {
    OutputFile file(path("taken"));
    fs::create_directories(path("taken") / "inside");  // a rename onto a directory cannot succeed
    EXPECT_NE(error_text([&] { file.commit(); }).find("taken"), std::string::npos);
  }
  EXPECT_EQ(names(), std::set<std::string>{"taken"});
}

TEST_F(FileTest, WritesAnEmptyFile) {
  write_text(path("empty"), "");
  EXPECT_EQ(read_text(path("empty")), "");
}

TEST_F(FileTest, SaysWhetherAFileExists) {
  EXPECT_FALSE(file_exists(path("a")));
  EXPECT_FALSE(file_exists(path("no") / "such" / "place"));
  write_text(path("a"), "");
  EXPECT_TRUE(file_exists(path("a")));
  EXPECT_TRUE(file_exists(directory_));
  EXPECT_THROW(file_exists(path(std::string(5000, 'x').c_str())), Error);
}

TEST_F(FileTest, ReadsAnyRange) {
  write_text(path("a"), "0123456789");
  const InputFile file(path("a"));
  const auto read = [&](std::int64_t offset, std::size_t n) {
    std::string text(n, ' ');
    file.read(offset, std::as_writable_bytes(std::span(text)));
    return text;
  };
  EXPECT_EQ(read(0, 10), "0123456789");
  EXPECT_EQ(read(3, 4), "3456");
  EXPECT_EQ(read(10, 0), "");
  EXPECT_THROW(read(7, 4), Error);
  EXPECT_THROW(read(-1, 1), Error);
  EXPECT_THROW(read(11, 0), Error);
}

TEST_F(FileTest, ErrorsNameThePathAndTheCause) {
  const auto missing = error_text([&] { InputFile{path("missing")}; });
  EXPECT_NE(missing.find("missing"), std::string::npos);
  EXPECT_NE(missing.find(std::strerror(ENOENT)), std::string::npos);
  EXPECT_NE(error_text([&] { InputFile{directory_}; }).find("a directory, must be a regular file"), std::string::npos);
  EXPECT_NE(error_text([&] { OutputFile{path("no") / "such" / "place"}; }).find("such"), std::string::npos);
  write_text(path("a"), "0123456789");
  EXPECT_NE(error_text([&] { read_text(path("a"), 9); }).find("10 bytes"), std::string::npos);
  EXPECT_EQ(read_text(path("a"), 10), "0123456789");
}

TEST_F(FileTest, SaysWhatItIsThatIsNoRegularFile) {
  ASSERT_EQ(::mkfifo(path("fifo").c_str(), 0600), 0);
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path("socket").string().copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  fs::create_symlink(path("fifo"), path("link"));
  const std::pair<fs::path, const char*> odd[]{{path("fifo"), "a FIFO"},
                                               {path("link"), "a FIFO"},
                                               {path("socket"), "a socket"},
                                               {directory_, "a directory"},
                                               {"/dev/null", "a character device"}};
  for (const auto& entry : odd) {
    const fs::path& name = entry.first;
    const char* const kind = entry.second;
    EXPECT_TRUE(zeepo::names(error_text([&] { InputFile{name}; }), name.string(), kind));
    EXPECT_TRUE(zeepo::names(error_text([&] { (void)read_text(name); }), name.string(), kind));
    EXPECT_TRUE(zeepo::names(error_text([&] { OutputFile{name}; }), name.string(), kind));
  }
  EXPECT_EQ(names(), (std::set<std::string>{"fifo", "link", "socket"}));
  ::close(socket);
}

TEST_F(FileTest, ShrinkingUnderAReaderIsAnError) {
  write_text(path("a"), "0123456789");
  const InputFile file(path("a"));
  fs::resize_file(path("a"), 4);
  std::array<std::byte, 10> bytes;
  EXPECT_NE(error_text([&] { file.read(0, bytes); }).find("ended at offset 4"), std::string::npos);
}

}  // namespace
}  // namespace zeepo
