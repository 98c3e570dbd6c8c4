#include "zeepo/data/merge_table.h"

#include <algorithm>
#include <bit>

namespace zeepo {

MergeTable::MergeTable(std::size_t merges) : slots_(std::bit_ceil(std::max<std::size_t>(16, merges * 2))) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  std::uint64_t hash = key * 0x9e3779b97f4a7c15u;
  hash ^= hash >> 32;
  std::size_t slot = hash & (slots_.size() - 1);
  while (slots_[slot].key != kEmpty && slots_[slot].key != key) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::insert(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kEmpty ? nullptr : &slot.merge;
}

}  // namespace zeepo
