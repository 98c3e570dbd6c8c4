// Shares dealt out in whole parts.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "zeepo/base/rng.h"
#include "zeepo/zero/placement.h"

namespace zeepo {
namespace {

constexpr auto D = Place::device, H = Place::host;

std::vector<Place> dealt(const Shares& shares, const std::vector<std::int64_t>& parts) {
  Dealer dealer(shares);
  std::vector<Place> places;
  for (const std::int64_t elements : parts) places.push_back(dealer.next(elements));
  return places;
}

TEST(Dealer, WholeSharesGoToOnePlace) {
  const std::vector<std::int64_t> parts{7, 1, 0, 1000, 3};
  for (const Place place : kPlaces)
    EXPECT_EQ(dealt(Shares::all_in(place), parts), std::vector<Place>(parts.size(), place)) << name_of(place);
}

TEST(Dealer, SpreadsAShareEvenly) {
  EXPECT_EQ(dealt({.host = 0.5}, std::vector<std::int64_t>(6, 10)), (std::vector{D, H, D, H, D, H}));
  EXPECT_EQ(dealt({.host = 0.75}, std::vector<std::int64_t>(8, 10)), (std::vector{H, D, H, H, H, D, H, H}));
}

TEST(Dealer, ASmallShareOfFewPartsComesToNothing) {
  EXPECT_EQ(dealt({.nvme = 0.1}, std::vector<std::int64_t>(4, 10)), (std::vector{D, D, D, D}));
  EXPECT_EQ(dealt({.host = 0.9, .nvme = 0.1}, {5, 5, 5}), (std::vector{H, H, H}));
}

TEST(Dealer, NeverDealsToAPlaceWithoutAShare) {
  for (const Place place : dealt({.host = 0.3, .nvme = 0.7}, std::vector<std::int64_t>(100, 3))) EXPECT_NE(place, D);
}

TEST(Dealer, EveryBeginningOfAPassHasItsShares) {
  const Shares shares{.host = 0.45, .nvme = 0.2};
  std::vector<std::int64_t> parts;
  std::int64_t largest = 0;
  for (std::uint64_t i = 0; i < 500; ++i) {
    parts.push_back(1 + static_cast<std::int64_t>(1000 * std::abs(normal({42}, i))));
    largest = std::max(largest, parts.back());
  }
  std::array<double, kPlaces.size()> sums{};
  double total = 0;
  const auto places = dealt(shares, parts);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    total += static_cast<double>(parts[i]);
    sums[static_cast<std::size_t>(places[i])] += static_cast<double>(parts[i]);
    for (const Place place : kPlaces)
      EXPECT_NEAR(sums[static_cast<std::size_t>(place)], shares.of(place) * total, 2.0 * static_cast<double>(largest))
          << name_of(place) << " after " << i;
  }
}

TEST(Dealer, TheSamePartsGetTheSamePlaces) {
  const std::vector<std::int64_t> parts{100, 7, 7, 50, 3, 100, 100, 1};
  EXPECT_EQ(dealt({.host = 0.6, .nvme = 0.1}, parts), dealt({.host = 0.6, .nvme = 0.1}, parts));
}

}  // namespace
}  // namespace zeepo
