// Which states live where between uses: shares of each kind over the tiers, dealt out to units and pieces of them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "zeepo/memory/tier.h"

namespace zeepo {

// Of all elements of a kind; the rest stays on the device.
struct Shares {
  double host = 0, nvme = 0;

  static Shares all_in(Place place) { return {place == Place::host ? 1.0 : 0.0, place == Place::nvme ? 1.0 : 0.0}; }
  bool on_device() const { return host <= 0 && nvme <= 0; }
  bool in_files() const { return nvme > 0; }
  double of(Place place) const { return place == Place::host ? host : place == Place::nvme ? nvme : 1 - host - nvme; }
  friend bool operator==(const Shares&, const Shares&) = default;
};

// "none", "host", "nvme=0.3", "host=0.5,nvme=0.3": as options give them.
std::string text_of(const Shares& shares);

// Which offloaded parameters are on the device without being fetched: always the same units, those that the shares
// leave on the device; or, in as much memory, those that were used last. For passes in a cycle that is larger than this
// memory the first always hits on its units and the second on none.
enum class CachePolicy { fixed, lru };

struct Placement {
  Shares params;
  Shares optimizer;                   // gradients stay with it
  Place activations = Place::device;  // what is kept of the forward for the backward pass
  CachePolicy cache = CachePolicy::fixed;

  bool on_device() const { return params.on_device() && optimizer.on_device() && activations == Place::device; }
  bool in_files() const { return params.in_files() || optimizer.in_files() || activations == Place::nvme; }
};

// Deals parts out one after another so that at every point each place has its share, as nearly as whole parts allow:
// what must be fetched is spread evenly over a pass.
class Dealer {
 public:
  explicit Dealer(const Shares& shares) : shares_(shares) {}

  // Of a part whose place is known.
  void deal(Place place, std::int64_t elements) {
    total_ += static_cast<double>(elements);
    dealt_[static_cast<std::size_t>(place)] += static_cast<double>(elements);
  }
  Place next(std::int64_t elements) {
    total_ += static_cast<double>(elements);
    Place chosen = Place::device;
    double furthest_behind = -1;
    for (const Place place : kPlaces) {
      const double behind = shares_.of(place) * total_ - dealt_[static_cast<std::size_t>(place)];
      if (shares_.of(place) <= 0 || behind <= furthest_behind) continue;
      furthest_behind = behind;
      chosen = place;
    }
    dealt_[static_cast<std::size_t>(chosen)] += static_cast<double>(elements);
    return chosen;
  }

 private:
  Shares shares_;
  double total_ = 0;
  std::array<double, kPlaces.size()> dealt_{};
};

}  // namespace zeepo
