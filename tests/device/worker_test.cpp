#include "zeepo/device/worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/refused_threads.h"

namespace zeepo {
namespace {

std::string failure_of(Completion& completion) {
  try {
    completion.wait();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Worker, DoesJobsInTheOrderGiven) {
  std::vector<int> done, expected(1000);  // no lock: one thread writes, wait() orders it before the reading
  std::iota(expected.begin(), expected.end(), 0);
  Worker worker;
  Completion last;
  for (const int i : expected) last = worker.run([&done, i] { done.push_back(i); });
  last.wait();
  EXPECT_EQ(done, expected);
}

TEST(Worker, WorksBesideItsCaller) {
  Worker worker;
  std::promise<int> given;
  int got = 0;
  Completion done = worker.run([&] { got = given.get_future().get(); });
  given.set_value(7);  // only now can the job end
  done.wait();
  EXPECT_EQ(got, 7);
}

TEST(Worker, WaitsInAnyOrderAndMoreThanOnce) {
  Worker worker;
  std::vector<int> results(100);
  std::vector<Completion> completions;
  for (std::size_t i = 0; i < results.size(); ++i)
    completions.push_back(worker.run([&results, i] { results[i] = static_cast<int>(i); }));
  for (std::size_t i = results.size(); i-- > 0;) {
    completions[i].wait();
    EXPECT_EQ(results[i], static_cast<int>(i));
    completions[i].wait();
  }
  Completion none;
  none.wait();  // what was never started is done
}

TEST(Worker, ThrowsWhatTheJobThrewWhenWaitedFor) {
  Worker worker;
  bool ran = false;
  Completion good = worker.run([&] { ran = true; });
  Completion bad = worker.run([] { throw std::runtime_error("the link is down"); });
  EXPECT_EQ(failure_of(good), "");
  EXPECT_TRUE(ran);
  EXPECT_EQ(failure_of(bad), "the link is down");
  EXPECT_EQ(failure_of(bad), "");  // said once
}

TEST(Worker, RunsNothingAfterAFailure) {
  Worker worker;
  std::atomic<int> ran = 0;
  Completion bad = worker.run([] { throw std::runtime_error("first"); });
  std::vector<Completion> later;
  for (int i = 0; i < 10; ++i)
    later.push_back(worker.run([&] {
      ++ran;
      throw std::runtime_error("second");
    }));
  for (auto& completion : later) EXPECT_EQ(failure_of(completion), "first");
  EXPECT_EQ(failure_of(bad), "first");
  Completion more = worker.run([&] { ++ran; });
  EXPECT_EQ(failure_of(more), "first");
  EXPECT_EQ(ran, 0);
}

TEST(Worker, FinishesItsJobsWhenDestroyed) {
  int done = 0;
  {
    Worker worker;
    for (int i = 0; i < 100; ++i) (void)worker.run([&] { ++done; });
  }
  EXPECT_EQ(done, 100);
  {
    Worker worker;  // a failure that nobody waits for
    (void)worker.run([] { throw std::runtime_error("unheard"); });
  }
}

TEST(Worker, CompletionsOutliveTheirWorker) {
  Completion good, bad;
  {
    Worker worker;
    good = worker.run([] {});
    bad = worker.run([] { throw std::runtime_error("the link is down"); });
  }
  EXPECT_EQ(failure_of(good), "");
  EXPECT_EQ(failure_of(bad), "the link is down");
}

TEST(WaitingCompletion, WaitsWhenDestroyedAndWhenOverwritten) {
  Worker worker;
  for (const bool overwritten : {false, true}) {
    std::atomic<bool> done = false;
    {
      WaitingCompletion waiting(worker.run([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        done = true;
      }));
      WaitingCompletion moved = std::move(waiting);  // the first one has nothing to wait for now
      if (overwritten) {
        moved = {};
        EXPECT_TRUE(done);
      }
    }
    EXPECT_TRUE(done);
  }
}

TEST(WaitingCompletion, ThrowsToWhoWaitsAndNotFromItsDestructor) {
  Worker worker;
  WaitingCompletion bad(worker.run([] { throw std::runtime_error("first"); }));
  EXPECT_EQ(failure_of(bad.handle()), "first");
  {
    const WaitingCompletion unheard(worker.run([] {}));
  }
}

TEST(WorkerOnDemand, DrainsWhatItWasGivenAndThrowsItsFailure) {
  WorkerOnDemand worker;
  worker.drain();  // without a thread
  int done = 0;
  for (int i = 0; i < 10; ++i) (void)worker.run([&] { ++done; });
  worker.drain();
  EXPECT_EQ(done, 10);
  (void)worker.run([] { throw std::runtime_error("the link is down"); });
  EXPECT_THROW(worker.drain(), std::runtime_error);
}

TEST(WorkerDeathTest, EndsInAnErrorWhenTheThreadIsRefused) {
  EXPECT_EXIT(exit_with_refusal(0,
                                [] {
                                  WorkerOnDemand worker;
                                  worker.run([] {}).wait();
                                }),
              testing::ExitedWithCode(kRefused), "cannot start a thread for transfers");
}

TEST(Worker, ManyComeAndGo) {
  int sum = 0;
  for (int i = 0; i < 200; ++i) {
    Worker worker;
    Completion done = worker.run([&] { sum += i; });
    if (i % 2 == 0) done.wait();
  }
  EXPECT_EQ(sum, 199 * 100);
}

}  // namespace
}  // namespace zeepo
