// How values are sent between ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace zeepo {

// same: as they are; else coded (wire_codec.h).
enum class WireType : std::uint8_t { same, int8, int4 };
struct WireFormat {
  WireType type;
  std::string_view name;
  int code_bits;     // of a value; 0: not coded
  bool for_weights;  // exact enough to gather weights in
};
// All of them, the most exact first: what options and checks are made from.
inline constexpr std::array kWireFormats{WireFormat{WireType::same, "same", 0, true},
                                         WireFormat{WireType::int8, "int8", 8, true},
                                         WireFormat{WireType::int4, "int4", 4, false}};
static_assert([] {
  for (std::size_t i = 0; i < kWireFormats.size(); ++i)
    if (kWireFormats[i].type != static_cast<WireType>(i)) return false;
  return true;
}());
constexpr const WireFormat& format_of(WireType type) { return kWireFormats[static_cast<std::size_t>(type)]; }
constexpr std::string_view name_of(WireType type) { return format_of(type).name; }

// How gathered parts come to all nodes: straight to each of them, or around a ring of the nodes. automatic: as the
// links are found to be (train/gather_route.h), else straight.
enum class GatherWay : std::uint8_t { automatic, direct, ring };

// What ranks send of weights and gradients.
struct WireOptions {
  WireType gather = WireType::same, reduce = WireType::same;
  bool feedback = false;   // what codes lose of a gradient is added to the next one
  bool node_copy = false;  // gathered weights are kept, shared out over the ranks of each node, until they are stepped
  int node_size = 0;       // ranks in a row that count as one node; 0: as they are
  GatherWay gather_way = GatherWay::automatic;

  bool coded() const { return gather != WireType::same || reduce != WireType::same; }
  friend bool operator==(const WireOptions&, const WireOptions&) = default;
};

}  // namespace zeepo
