#include "zeepo/train/step_probe.h"

#include <gtest/gtest.h>

#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

constexpr StepWork kBf16{.dtype = DType::bf16, .grads = DType::bf16};

// Times of an element on each side, in one unit.
struct Times {
  double host, device;
};
Times times(const StepRates& rates, const StepWork& work, double share) {
  return {share / rates.host_elements_per_second,
          ((1 - share) * work.through_device() + share * work.to_host()) / rates.link_bytes_per_second};
}

TEST(StepWork, CountsWhatCrossesTheLink) {
  EXPECT_EQ(kBf16.through_device(), 10);  // two moments and the rest of the weight
  EXPECT_EQ(kBf16.to_host(), 4);          // gradient and weight
  StepWork work = kBf16;
  work.grads = DType::f32;
  EXPECT_EQ(work.to_host(), 6);
  work.params_on_device = false;
  EXPECT_EQ(work.through_device(), 12);
  EXPECT_EQ(work.to_host(), 4);
  work.optimizer.moments = MomentType::bf16;
  EXPECT_EQ(work.through_device(), 8);
}

TEST(BalancedShare, LetsBothSidesEndTogether) {
  for (const double host : {1e8, 1e9, 4e9})
    for (const double link : {2.5e10, 5e10, 2e11}) {
      const StepRates rates{link, host};
      const double share = balanced_share(rates, kBf16);
      const auto [on_host, through_device] = times(rates, kBf16, share);
      EXPECT_GT(share, 0);
      EXPECT_LE(share, 1);
      EXPECT_NEAR(on_host, through_device, 1e-6 * on_host) << host << " " << link;
    }
}

TEST(BalancedShare, GivesAllToAHostThatIsFasterThanItsGradientsCome) {
  EXPECT_EQ(balanced_share({1e9, 1e12}, kBf16), 1);
}

// fp32 moments of fp32 weights are as many bytes as gradients and weights; smaller states are fewer.
TEST(HostShare, IsNoneWhereItSavesTheLinkNothing) {
  std::vector<StepWork> works(4);
  works[1].optimizer.moments = MomentType::eight_bit;
  works[2].optimizer = {.type = OptimizerType::sgd, .momentum = 0.9f};
  works[3] = {.dtype = DType::bf16, .grads = DType::f32, .optimizer = works[1].optimizer};
  for (const StepWork& work : works)
    for (const double link : {1.1e10, 3.5e10})
      for (const double host : {3.5e9, 6e9}) {
        EXPECT_EQ(balanced_share({link, host}, work), 0) << link << " " << host;
        EXPECT_EQ(host_share({link, host}, work, 0.3, 3e9), 0) << link << " " << host;
      }
}

TEST(HostShare, TakesAsLongAsWhatIsLeftOfTheWait) {
  constexpr double kElements = 7.6e9;
  const StepRates rates{3.4e10, 3.5e9};
  for (const double waited : {0.1, 0.5, 1.5}) {
    const double share = host_share(rates, kBf16, waited, kElements);
    const double saved = share * kElements * (kBf16.through_device() - kBf16.to_host()) / rates.link_bytes_per_second;
    EXPECT_NEAR(share * kElements / rates.host_elements_per_second, waited - saved, 1e-9) << waited;
  }
  EXPECT_EQ(host_share(rates, kBf16, 0, kElements), 0);
  EXPECT_EQ(host_share(rates, kBf16, 100, kElements), balanced_share(rates, kBf16));
}

TEST(StepRates, AreMeasuredOnAllRanksTogether) {
  std::vector<StepRates> rates(2);
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    Session session({.threads = 2, .device_bytes = 1 << 20}, communicator);
    rates[static_cast<std::size_t>(communicator.rank())] =
        measure_step_rates(communicator, session.compute(), 2, kBf16);
  });
  for (const auto& [link, host] : rates) {
    EXPECT_GT(link, 0);
    EXPECT_GT(host, 0);
  }
}

}  // namespace
}  // namespace zeepo
