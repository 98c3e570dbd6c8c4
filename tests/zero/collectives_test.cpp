#include "zeepo/zero/collectives.h"

#include <vector>

#include "tests/support/errors.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

View view_of(std::vector<float>& values) {
  return {values.data(), DType::f32, {static_cast<std::int64_t>(values.size())}};
}

TEST(Collectives, RunBesideTheComputeInTheOrderGiven) {
  for (const auto overlap : {Collectives::Overlap::no, Collectives::Overlap::yes}) {
    ThreadsWorld world(3);
    run(world, [&](Communicator& communicator) {
      Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
      Collectives collectives(communicator, overlap);
      const auto rank = static_cast<float>(communicator.rank());
      std::vector<float> own{rank, rank + 10}, all(6), scratch(6), sum(2);
      // The sum is of what the gather brings: it may not start before.
      PendingCollective gathered = collectives.all_gather(view_of(own), view_of(all), {"first", 1});
      PendingCollective reduced =
          collectives.reduce_scatter(view_of(all), view_of(scratch), view_of(sum), {"second", 2});
      collectives.wait(reduced);
      collectives.wait(gathered);
      EXPECT_EQ(all, (std::vector<float>{0, 10, 1, 11, 2, 12}));
      EXPECT_EQ(sum, (std::vector<float>{3 * rank, 3 * (rank + 10)}));
      collectives.all_reduce(view_of(sum), {"third", 3});
      EXPECT_EQ(sum, (std::vector<float>{9, 99}));
      collectives.broadcast(view_of(own), 2, {"fourth", 4});
      EXPECT_EQ(own, (std::vector<float>{2, 12}));
      EXPECT_EQ(collectives.sent().all_gather, 16);
      EXPECT_EQ(collectives.sent().reduce_scatter, 16);
      EXPECT_EQ(collectives.sent().all_reduce, 10);  // 2 × 2/3 of 8 bytes
    });
  }
}

TEST(Collectives, AloneOrDryNothingIsSent) {
  std::vector<float> x{1, 2};
  {
    Session session({.threads = 1, .device_bytes = 1 << 20});
    Collectives collectives(alone(), Collectives::Overlap::yes);
    EXPECT_TRUE(collectives.alone());
    collectives.all_reduce(view_of(x), {"loss", 0});
    EXPECT_EQ(x, (std::vector<float>{1, 2}));
    EXPECT_EQ(collectives.sent().all_reduce, 0);
  }
  ThreadsWorld world(2);  // whose other rank never comes
  const Session session = Session::dry(world.communicator(0));
  Collectives collectives(world.communicator(0), Collectives::Overlap::yes);
  collectives.all_reduce(view_of(x), {"loss", 0});
  EXPECT_EQ(x, (std::vector<float>{1, 2}));
}

TEST(Collectives, OnAGpuThePlanHoldsWhatTheyPassThrough) {
  ThreadsWorld world(2);
  const auto planned = [](Communicator& communicator, Backend backend) {
    const Session session = Session::dry(communicator, {}, backend);
    const Collectives collectives(communicator, Collectives::Overlap::yes);
    return session.peak(Place::host).total;
  };
  EXPECT_EQ(planned(world.communicator(0), Backend::cuda), static_cast<std::int64_t>(kStagingBytes));
  EXPECT_EQ(planned(world.communicator(0), Backend::cpu), 0);
  EXPECT_EQ(planned(alone(), Backend::cuda), 0);
}

TEST(Collectives, ThrowWhereTheyAreWaitedForWhenRanksDisagree) {
  ThreadsWorld world(2);
  std::vector<std::string> texts(2);
  run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
    Collectives collectives(communicator, Collectives::Overlap::yes);
    std::vector<float> own(1), all(2);
    PendingCollective done = collectives.all_gather(view_of(own), view_of(all), {"unit", 4 + communicator.rank()});
    texts[static_cast<std::size_t>(communicator.rank())] = error_text([&] { collectives.wait(done); });
  });
  for (const auto& text : texts) EXPECT_TRUE(names(text, "rank 1", "id 4", "id 5"));
}

}  // namespace
}  // namespace zeepo
