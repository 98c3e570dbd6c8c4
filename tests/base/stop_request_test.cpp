#include "zeepo/base/stop_request.h"

#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <optional>
#include <thread>

#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/base/partial_files.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Watcher = StopRequest::Watcher;

void sleep_ms(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class StopRequestTest : public testing::Test {
 protected:
  fs::path path(const char* name) const { return directory_.path() / name; }
  const TestDirectory directory_;
};

// A file, and a directory with files and a directory, all half written; then a signal. Never returns.
[[noreturn]] void raise_with_partials(const fs::path& directory, int signal) {
  const StopRequest::Signals signals;
  OutputFile file(directory / "file");
  file.write(std::string_view("half"));
  const PartialPath parent(directory / "made", PartialPath::Directory::if_empty);
  const PartialPath listed(directory / "made/staging");
  fs::create_directories(directory / "made/staging/inner");
  for (const char* name : {"made/staging/a", "made/staging/b", "made/staging/inner/c"})
    std::ofstream(directory / name) << "half";
  std::raise(signal);
  std::_Exit(0);
}

TEST_F(StopRequestTest, WithoutAWatcherASignalRemovesPartialFilesAndEndsTheProcess) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1}) {
    std::ofstream(path("other")) << "stays";
    EXPECT_EXIT(raise_with_partials(directory_.path(), signal), testing::KilledBySignal(signal), "");
    for (const char* name : {"file", "made"}) EXPECT_FALSE(fs::exists(path(name))) << name;
    std::size_t left = 0;
    for ([[maybe_unused]] const auto& entry : fs::directory_iterator(directory_.path())) ++left;
    EXPECT_EQ(left, 1u) << "nothing but the other file";
  }
}

TEST_F(StopRequestTest, WhatIsInUseByOthersStays) {
  EXPECT_EXIT(
      {
        const StopRequest::Signals signals;
        const PartialPath parent(path("made"), PartialPath::Directory::if_empty);
        fs::create_directory(path("made"));
        std::ofstream(path("made/theirs")) << "stays";
        { const OutputFile dropped(path("dropped")); }
        std::ofstream(path("dropped")) << "stays";
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_TRUE(fs::exists(path("made/theirs")));
  EXPECT_TRUE(fs::exists(path("dropped"))) << "its partial file is gone from the table";
}

TEST_F(StopRequestTest, AWatcherHasOnlyTheGrace) {
  EXPECT_EXIT(
      {
        const StopRequest::Signals signals;
        const StopRequest::Watch watch(Watcher::work);
        const OutputFile file(path("file"));
        const StopRequest::Grace grace(1);
        std::raise(SIGINT);
        sleep_ms(30'000);
      },
      testing::KilledBySignal(SIGINT), "--stop-grace");
  EXPECT_TRUE(fs::is_empty(directory_.path()));
  EXPECT_EXIT(
      {
        const StopRequest::Signals signals;
        const StopRequest::Watch watch(Watcher::work);
        {
          const StopRequest::Grace grace(1);
          const StopRequest::Grace none(0);
          std::raise(SIGINT);
        }
        sleep_ms(1200);  // it was done in time
        std::_Exit(3);
      },
      testing::ExitedWithCode(3), "");
}

TEST_F(StopRequestTest, AWatcherIsToldAndASecondSignalEndsTheProcess) {
  EXPECT_EXIT(
      {
        const StopRequest::Signals signals;
        const StopRequest::Watch watch(Watcher::work);
        if (StopRequest::signal() != 0) std::_Exit(1);
        std::raise(SIGINT);
        std::raise(SIGTERM);  // some launchers send two: they count as one
        if (StopRequest::signal() != SIGINT) std::_Exit(2);
        sleep_ms(600);
        std::raise(SIGHUP);
        std::_Exit(3);
      },
      testing::KilledBySignal(SIGHUP), "");
}

TEST_F(StopRequestTest, StoppedKeepsTheWatch) {
  EXPECT_EXIT(
      {
        const StopRequest::Signals signals;
        try {
          const StopRequest::Watch watch(Watcher::work);
          std::raise(SIGTERM);
          throw Stopped(StopRequest::signal(), std::nullopt, "stopped by {}", name_of_signal(StopRequest::signal()));
        } catch (const Stopped& stopped) {
          if (!StopRequest::watched_by(Watcher::work) || StopRequest::watched_by(Watcher::heartbeat)) std::_Exit(1);
          if (std::string(stopped.what()) != "stopped by SIGTERM") std::_Exit(2);
          StopRequest::end_process(stopped.signal());
        }
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_FALSE(StopRequest::watched_by(Watcher::work));
}

TEST_F(StopRequestTest, LeavesAloneWhatIsIgnoredOrHandledByOthers) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        std::signal(SIGINT, [](int) { std::_Exit(7); });
        std::optional<StopRequest::Signals> signals(std::in_place);
        std::raise(SIGHUP);
        if (StopRequest::signal() != 0) std::_Exit(1);
        signals.reset();
        std::raise(SIGHUP);
        std::raise(SIGINT);
        std::_Exit(2);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(StopRequestTest, GivesTheSignalsBack) {
  EXPECT_EXIT(
      {
        const StopRequest::Watch watch(Watcher::work);
        {
          const StopRequest::Signals outer;
          { const StopRequest::Signals inner; }
          std::raise(SIGTERM);
          if (StopRequest::signal() != SIGTERM) std::_Exit(1);
        }
        std::raise(SIGTERM);
        std::_Exit(2);
      },
      testing::KilledBySignal(SIGTERM), "");
}

// More than the table holds, and moved about.
TEST_F(StopRequestTest, ManyPartialFiles) {
  std::vector<PartialPath> many;
  for (int i = 0; i < 100; ++i) many.emplace_back(path("x"));
  many.clear();
  EXPECT_EXIT(
      {
        const StopRequest::Signals signals;
        PartialPath first(path("moved"));
        const PartialPath second(std::move(first));
        first = PartialPath(path("again"));
        std::ofstream(path("moved")) << "half";
        std::ofstream(path("again")) << "half";
        std::raise(SIGTERM);
      },
      testing::KilledBySignal(SIGTERM), "");
  EXPECT_FALSE(fs::exists(path("moved")));
  EXPECT_FALSE(fs::exists(path("again")));
}

}  // namespace
}  // namespace zeepo
