#include "zeepo/comm/threads/threads_world.h"

#include <mutex>
#include <set>

#include "tests/comm/collective_checks.h"
#include "tests/comm/mismatch_checks.h"
#include "tests/support/refused_threads.h"

namespace zeepo {
namespace {

TEST(ThreadsWorld, EveryRankGetsTheReferenceToTheBit) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    ThreadsWorld world(ranks);
    run(world, [](Communicator& comm) {
      check_collectives(comm);
      check_exchange(comm);
      comm.finish();
    });
  }
}

TEST(ThreadsWorldDeathTest, EndsInAnErrorWhenARankGetsNoThread) {
  const auto job = [] {
    ThreadsWorld world(6);
    run(world, [](Communicator& comm) { comm.finish(); });  // waits for all ranks
  };
  EXPECT_REFUSED(job, "cannot start a thread for a rank: .*ulimit -u");
}

TEST(ThreadsWorld, SumsDependOnTheOrder) {
  // The reference would not see a sum in another order if all orders gave the same bits.
  const Values sum = reference_sum(DType::f32, DType::f32, 100, 4, 0, 100);
  std::vector<float> backwards(100);
  for (int rank = 3; rank >= 0; --rank) {
    Values values(DType::f32, 100, rank);
    for (std::int64_t i = 0; i < 100; ++i) backwards[static_cast<std::size_t>(i)] += element(values.view(), i);
  }
  EXPECT_NE(std::memcmp(sum.bytes.data(), backwards.data(), sum.bytes.size()), 0);
}

TEST(ThreadsWorld, ManyCallsInARow) {
  ThreadsWorld world(4);
  run(world, [](Communicator& comm) {
    ThreadPool pool(2);
    CpuStream stream(pool);
    for (int call = 0; call < 300; ++call) {
      float x = static_cast<float>(comm.rank() + call);
      comm.all_reduce(stream, {&x, DType::f32, {1}}, {"count", call});
      EXPECT_EQ(x, static_cast<float>(6 + 4 * call));
    }
  });
}

TEST(ThreadsWorld, MismatchIsAnErrorOnEveryRank) {
  for (const int ranks : {2, 3, 4}) {
    ThreadsWorld world(ranks);
    run(world, check_mismatches);
  }
}

// Runs all_reduce "norm" on every rank but the last, which does `last` instead; the errors of the others, by rank.
template <class F>
std::vector<std::string> errors_beside(ThreadsWorld& world, std::string* thrown, F&& last) {
  std::vector<std::string> errors(static_cast<std::size_t>(world.size()));
  const auto body = [&](Communicator& comm) {
    if (comm.rank() == world.size() - 1) return last();
    ThreadPool pool(1);
    CpuStream stream(pool);
    float x = 1;
    try {
      comm.all_reduce(stream, {&x, DType::f32, {1}}, {"norm", 7});
    } catch (const Error& error) {
      errors[static_cast<std::size_t>(comm.rank())] = error.what();
      throw;
    }
  };
  *thrown = error_text([&] { run(world, body); });
  return errors;
}

TEST(ThreadsWorld, ARankThatThrowsEndsAll) {
  ThreadsWorld world(4);
  std::string thrown;
  const auto errors = errors_beside(world, &thrown, [] { throw Error("the disk is full"); });
  EXPECT_EQ(thrown, "rank 3: the disk is full");
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_TRUE(names(errors[static_cast<std::size_t>(rank)], "rank 3 failed", fmt::format("rank {} waited", rank),
                      "\"norm\" (id 7)", "the disk is full"));
  // A later call throws at once.
  ThreadPool pool(1);
  CpuStream stream(pool);
  float x = 1;
  EXPECT_TRUE(names(error_text([&] {
                      world.communicator(0).all_reduce(stream, {&x, DType::f32, {1}}, {"more", 8});
                    }),
                    "rank 3 failed", "\"more\" (id 8)"));
}

TEST(ThreadsWorld, ARankThatEndsEarlyEndsAll) {
  ThreadsWorld world(3);
  std::string thrown;
  const auto errors = errors_beside(world, &thrown, [] {});
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(names(errors[static_cast<std::size_t>(rank)], rank == 0 ? "rank 0 waited" : "rank 1 waited", "norm"));
  EXPECT_TRUE(names(thrown, "rank 2 ended"));
}

TEST(ThreadsWorld, RefusesAWorldOfNoRanks) {
  EXPECT_TRUE(names(error_text([] { ThreadsWorld world(0); }), "0 ranks", "at least 1"));
}

}  // namespace
}  // namespace zeepo
