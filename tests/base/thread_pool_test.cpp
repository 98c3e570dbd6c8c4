#include "zeepo/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "tests/support/refused_threads.h"
#include "zeepo/base/error.h"

namespace zeepo {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> calls(static_cast<std::size_t>(tasks));
      pool.run(tasks, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
      for (const auto& count : calls) EXPECT_EQ(count, 1);
    }
  }
}

TEST(ThreadPool, CutsARangeWithoutGapsOrOverlap) {
  ThreadPool pool(3);
  for (const std::int64_t n : {0, 1, 9, 10, 11, 1000})
    for (const std::int64_t grain : {1, 10, 5000}) {
      std::mutex mutex;
      std::set<std::pair<std::int64_t, std::int64_t>> pieces;
      pool.for_range(n, grain, [&](std::int64_t begin, std::int64_t end) {
        const std::lock_guard lock(mutex);
        pieces.emplace(begin, end);
      });
      std::int64_t at = 0;
      for (const auto& [begin, end] : pieces) {
        EXPECT_EQ(begin, at);
        EXPECT_LE(end - begin, grain);
        EXPECT_LT(begin, end);
        at = end;
      }
      EXPECT_EQ(at, n);
    }
}

TEST(ThreadPool, UsesItsThreads) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  // Both tasks wait for each other: they return only if two threads take them.
  pool.run(2, [&](std::int64_t) {
    ++arrived;
    while (arrived < 2) std::this_thread::yield();
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, RethrowsAndCanBeUsedAgain) {
  for (const int threads : {1, 4}) {
    ThreadPool pool(threads);
    for (int repetition = 0; repetition < 20; ++repetition) {
      try {
        pool.run(50, [](std::int64_t i) {
          if (i == 17) throw Error("task {}", i);
        });
        FAIL() << "nothing was thrown";
      } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "task 17");
      }
      std::atomic<std::int64_t> sum{0};
      pool.run(100, [&](std::int64_t i) { sum += i; });
      EXPECT_EQ(sum, 4950);
    }
  }
}

TEST(ThreadPool, EndsAllTasksBeforeItRethrows) {
  ThreadPool pool(4);
  for (int repetition = 0; repetition < 50; ++repetition) {
    std::atomic<int> inside{0};
    EXPECT_THROW(pool.run(8,
                          [&](std::int64_t i) {
                            ++inside;
                            if (i == 0) {
                              --inside;
                              throw Error("first");
                            }
                            std::this_thread::sleep_for(std::chrono::microseconds(50));
                            --inside;
                          }),
                 Error);
    EXPECT_EQ(inside, 0);
  }
}

TEST(ThreadPool, ManyShortRunsInARow) {
  ThreadPool pool(3);
  std::atomic<std::int64_t> count{0};
  for (int i = 0; i < 5000; ++i) pool.run(4, [&](std::int64_t) { ++count; });
  EXPECT_EQ(count, 20'000);
}

TEST(ThreadPool, NeedsAThread) {
  EXPECT_THROW(ThreadPool(0), Error);
  EXPECT_THROW(ThreadPool(-1), Error);
}

TEST(ThreadPoolDeathTest, EndsInAnErrorWhenAThreadIsRefused) {
  EXPECT_REFUSED([] { ThreadPool pool(64); }, "cannot start a thread for the pool of 64: .*ulimit -u.*--threads");
}

// Sets OMP_NUM_THREADS for as long as it lives.
class OmpThreads {
 public:
  explicit OmpThreads(const char* value) {
    if (const char* old = std::getenv("OMP_NUM_THREADS")) old_ = old, was_set_ = true;
    if (value)
      ::setenv("OMP_NUM_THREADS", value, 1);
    else
      ::unsetenv("OMP_NUM_THREADS");
  }
  ~OmpThreads() {
    if (was_set_)
      ::setenv("OMP_NUM_THREADS", old_.c_str(), 1);
    else
      ::unsetenv("OMP_NUM_THREADS");
  }

 private:
  std::string old_;
  bool was_set_ = false;
};

TEST(ChooseThreads, RequestThenEnvironmentThenCores) {
  {
    const OmpThreads environment("3");
    EXPECT_EQ(choose_threads(5), 5);
    EXPECT_EQ(choose_threads(0), 3);
    EXPECT_EQ(choose_threads(0, 8), 3);
  }
  {
    const OmpThreads levels("4,2");
    EXPECT_EQ(choose_threads(0), 4);
  }
  for (const char* nothing : {static_cast<const char*>(nullptr), ""}) {
    const OmpThreads none(nothing);
    EXPECT_GE(choose_threads(0), 1);
    EXPECT_EQ(choose_threads(0, 1'000'000), 1);
  }
  for (const auto* bad : {"zero", "0", "-2", "2x", ",2"}) {
    const OmpThreads environment(bad);
    EXPECT_THROW(choose_threads(0), Error) << bad;
    EXPECT_EQ(choose_threads(2), 2);
  }
}

}  // namespace
}  // namespace zeepo
