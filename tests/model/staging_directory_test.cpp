#include "zeepo/model/staging_directory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/support/address_sanitizer.h"
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

// No file of this process can be opened while it lives; directories can be made and removed by name.
class NoFiles {
 public:
  NoFiles() {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none{0, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(StagingDirectory, SaysWhyWhatWasLeftThereStays) {
  if (kAddressSanitizer) GTEST_SKIP() << "the undefined behaviour sanitizer beside it opens files to look at objects";
  const TestDirectory directory;
  const fs::path target = directory.path() / "model";
  const fs::path left = target.string() + fmt::format(".partial-{}", ::getpid());
  fs::create_directory(left);
  std::ofstream(left / "config.json") << "{}";
  {
    const NoFiles none;
    EXPECT_TRUE(
        names(error_text([&] { StagingDirectory{target}; }), "cannot remove", left.string(), "Too many open files"));
  }
  EXPECT_TRUE(fs::exists(left / "config.json"));
  { const StagingDirectory staging(target); }
  EXPECT_FALSE(fs::exists(left));
}

TEST(StagingDirectory, LeavesNothingWhereNoFileCanBeOpened) {
  if (kAddressSanitizer) GTEST_SKIP() << "the undefined behaviour sanitizer beside it opens files to look at objects";
  const TestDirectory directory;
  const fs::path target = directory.path() / "model";
  {
    const NoFiles none;
    const StagingDirectory trial(target);
    EXPECT_TRUE(fs::exists(trial.path()));
  }
  EXPECT_TRUE(fs::is_empty(directory.path()));
}

}  // namespace
}  // namespace zeepo
