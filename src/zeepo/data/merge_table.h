// The merges of BPE: a pair of neighbouring tokens to its rank and the token it becomes.
#pragma once

#include <cstdint>
#include <vector>

namespace zeepo {

struct Merge {
  std::uint32_t rank;
  std::int32_t id;
};

class MergeTable {
 public:
  explicit MergeTable(std::size_t merges = 0);

  // The last of several merges of one pair counts.
  void insert(std::int32_t left, std::int32_t right, Merge merge);
  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kEmpty;
    Merge merge{};
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};
  static std::uint64_t key_of(std::int32_t left, std::int32_t right) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
  }
  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace zeepo
