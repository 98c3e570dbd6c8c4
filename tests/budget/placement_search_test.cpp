#include "zeepo/budget/placement_search.h"

#include <gtest/gtest.h>

#include <cmath>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

// A model whose need of each tier follows from the shares alone.
struct Sizes {
  double params = 200e3, optimizer = 1200e3, activations = 300e3, checkpoints = 60e3, working = 40e3;

  PlaceBytes plan(const Arrangement& a) const {
    std::array<double, 3> bytes{};
    for (const Place place : kPlaces) {
      double& here = bytes[static_cast<std::size_t>(place)];
      here = a.placement.params.of(place) * params + a.placement.optimizer.of(place) * optimizer;
    }
    bytes[0] += working;
    if (!a.placement.params.on_device()) bytes[0] += static_cast<double>(a.prefetch_bytes);
    const bool away = a.placement.activations != Place::device;
    if (away) bytes[static_cast<std::size_t>(a.placement.activations)] += checkpoints;
    if (!away) bytes[0] += a.activation_checkpointing ? checkpoints : activations;
    if (a.placement.in_files()) bytes[1] += 10e3;  // what files pass through
    PlaceBytes whole{};
    for (std::size_t i = 0; i < 3; ++i) whole[i] = std::llround(bytes[i]);
    return whole;
  }
};

constexpr OpenChoices kAllOpen{.params = true, .optimizer = true, .activations = true, .prefetch = true};
constexpr std::int64_t kPrefetch = 20'000;

PlacementSearch::Result choose(const PlaceBytes& budgets, const OpenChoices& open = kAllOpen, Arrangement given = {}) {
  if (given.prefetch_bytes == 0) given.prefetch_bytes = kPrefetch;
  const Sizes sizes;
  const PlacementSearch search{
      .given = given, .open = open, .budgets = budgets, .plan = [=](const Arrangement& a) { return sizes.plan(a); }};
  return search.run();
}
std::string flags(const PlaceBytes& budgets) {
  const auto result = choose(budgets);
  EXPECT_TRUE(result.fits);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_LE(result.bytes[i], budgets[i]);
  return flags_of(result.arrangement);
}

constexpr std::int64_t kMuch = 10'000'000;

TEST(PlacementSearch, LeavesEverythingOnADeviceThatHasRoom) {
  EXPECT_EQ(flags({1'740'000, 0, 0}),
            "--offload-optimizer none --offload-param none --offload-activations none --prefetch 20000");
}

TEST(PlacementSearch, TakesTheRungsInOrder) {
  // 1740 in all; of which 1200 may leave as states, 240 are not kept but computed again, 60 are their checkpoints.
  EXPECT_EQ(flags({1'000'000, kMuch, 0}),
            "--offload-optimizer host=0.617 --offload-param none --offload-activations none --prefetch 20000");
  EXPECT_EQ(flags({540'000, kMuch, 0}),
            "--offload-optimizer host --offload-param none --offload-activations none --prefetch 20000");
  EXPECT_EQ(flags({500'000, kMuch, 0}),
            "--offload-optimizer host=0.834 --offload-param none --offload-activations none "
            "--activation-checkpointing --prefetch 20000");
  EXPECT_EQ(flags({270'000, kMuch, 0}),
            "--offload-optimizer host=0.975 --offload-param none --offload-activations host "
            "--activation-checkpointing --prefetch 20000");
  EXPECT_EQ(flags({160'000, kMuch, 0}),
            "--offload-optimizer host --offload-param host=0.5 --offload-activations host "
            "--activation-checkpointing --prefetch 20000");
  EXPECT_EQ(flags({50'000, kMuch, 0}),
            "--offload-optimizer host --offload-param host --offload-activations host "
            "--activation-checkpointing --prefetch 10000");
}

TEST(PlacementSearch, TakesNoMoreThanIsNeeded) {
  const Sizes sizes;
  for (std::int64_t device = 60'000; device < 1'740'000; device += 7'919) {
    const auto result = choose({device, kMuch, 0});
    ASSERT_TRUE(result.fits) << device;
    EXPECT_LE(result.bytes[0], device);
    Arrangement less = result.arrangement;
    const double step = 1.0 / PlacementSearch::kSteps;
    double& share = less.placement.params.host > 0 ? less.placement.params.host : less.placement.optimizer.host;
    if (share <= 0) continue;
    share -= step;
    EXPECT_GT(sizes.plan(less)[0], device) << "one step less would fit: " << flags_of(result.arrangement);
  }
}

TEST(PlacementSearch, ComputesAgainBeforeItUsesFiles) {
  // The host has room for 700: with activations kept, 740 would have to leave.
  EXPECT_EQ(flags({1'000'000, 700'000, kMuch}),
            "--offload-optimizer host=0.417 --offload-param none --offload-activations none "
            "--activation-checkpointing --prefetch 20000");
}

TEST(PlacementSearch, PutsIntoFilesWhatIsMovedLeastOften) {
  // 1000 of states must leave; 10 of the host's 610 are buffers.
  EXPECT_EQ(flags({500'000, 610'000, kMuch}),
            "--offload-optimizer host=0.5,nvme=0.334 --offload-param none --offload-activations none "
            "--activation-checkpointing --prefetch 20000");
  // All but working memory and half of the parameters: checkpoints and parameters stay in the host's 200.
  EXPECT_EQ(flags({160'000, 200'000, kMuch}),
            "--offload-optimizer host=0.025,nvme=0.975 --offload-param host=0.5 --offload-activations host "
            "--activation-checkpointing --prefetch 20000");
  EXPECT_EQ(flags({160'000, 110'000, kMuch}),
            "--offload-optimizer nvme --offload-param host=0.5 --offload-activations nvme "
            "--activation-checkpointing --prefetch 20000");
  EXPECT_EQ(flags({60'000, 110'000, kMuch}),
            "--offload-optimizer nvme --offload-param host=0.5,nvme=0.5 --offload-activations nvme "
            "--activation-checkpointing --prefetch 20000");
}

TEST(PlacementSearch, KeepsWhatIsGiven) {
  Arrangement given;
  given.placement.params.host = 0.25;
  given.prefetch_bytes = 5000;
  const auto result = choose({1'000'000, kMuch, 0}, {.optimizer = true}, given);
  EXPECT_TRUE(result.fits);
  EXPECT_EQ(flags_of(result.arrangement),
            "--offload-optimizer host=0.58 --offload-param host=0.25 --offload-activations none --prefetch 5000");
  // With parameters and activations where they are, 545 is the least.
  EXPECT_FALSE(choose({190'000, kMuch, kMuch}, {.optimizer = true}, given).fits);
}

TEST(PlacementSearch, SaysWhatIsNeededWhereNothingFits) {
  const auto device = choose({39'000, kMuch, kMuch});
  EXPECT_FALSE(device.fits);
  EXPECT_EQ(device.bytes, (PlaceBytes{40'000, 10'000, 1'460'000}));
  const auto host = choose({500'000, 900'000, 0});
  EXPECT_FALSE(host.fits);
  EXPECT_EQ(host.bytes, (PlaceBytes{40'000, 1'460'000, 0}));
  const auto files = choose({500'000, 100'000, 800'000});
  EXPECT_FALSE(files.fits);
}

TEST(PlacementSearch, AsksForFewPlans) {
  int plans = 0;
  const Sizes sizes;
  const PlacementSearch search{.given = {{}, false, 20'000},
                               .open = kAllOpen,
                               .budgets = {161'234, 201'234, kMuch},
                               .plan = [&](const Arrangement& a) {
                                 ++plans;
                                 return sizes.plan(a);
                               }};
  EXPECT_TRUE(search.run().fits);
  EXPECT_LE(plans, 40);
}

}  // namespace
}  // namespace zeepo
