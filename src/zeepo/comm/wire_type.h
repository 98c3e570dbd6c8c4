// How values are sent between ranks.
#pragma once

#include <cstdint>
#include <string_view>

namespace zeepo {

// same: as they are; else coded (wire_codec.h).
enum class WireType : std::uint8_t { same, int8, int4 };
std::string_view name_of(WireType type);

// What ranks send of weights and gradients.
struct WireOptions {
  WireType gather = WireType::same, reduce = WireType::same;
  bool feedback = false;   // what codes lose of a gradient is added to the next one
  bool node_copy = false;  // gathered weights are kept, shared out over the ranks of each node, until they are stepped
  int node_size = 0;       // ranks in a row that count as one node; 0: as they are

  bool coded() const { return gather != WireType::same || reduce != WireType::same; }
  friend bool operator==(const WireOptions&, const WireOptions&) = default;
};

}  // namespace zeepo
