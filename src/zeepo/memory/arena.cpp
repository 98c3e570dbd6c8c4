#include "zeepo/memory/arena.h"

#include <algorithm>
#include <iterator>

namespace zeepo {

Arena::Arena(std::size_t capacity_bytes, std::size_t alignment)
    : alignment_(alignment), capacity_(capacity_bytes / alignment * alignment) {
  if (capacity_ > 0) add_gap(0, capacity_);
}

void Arena::add_gap(std::size_t offset, std::size_t size) {
  gaps_.emplace(offset, size);
  if (offset + size < capacity_) by_size_.insert({size, offset});
}

void Arena::remove_gap(std::map<std::size_t, std::size_t>::iterator gap) {
  if (gap->first + gap->second < capacity_) by_size_.erase({gap->second, gap->first});
  gaps_.erase(gap);
}

std::optional<std::size_t> Arena::take(std::size_t bytes) {
  const std::size_t size = aligned(bytes, alignment_);
  if (size == 0) return 0;
  auto gap = gaps_.end();
  if (const auto best = by_size_.lower_bound({size, 0}); best != by_size_.end()) {
    gap = gaps_.find(best->offset);
  } else if (!gaps_.empty()) {
    // What was never in use comes last, however much of it there is: a range that is just large enough then gives the
    // addresses of an endless one.
    gap = std::prev(gaps_.end());
    if (gap->first + gap->second < capacity_ || gap->second < size) gap = gaps_.end();
  }
  if (gap == gaps_.end()) return std::nullopt;
  const auto [offset, gap_size] = *gap;
  remove_gap(gap);
  if (gap_size > size) add_gap(offset + size, gap_size - size);
  used_ += size;
  high_water_ = std::max(high_water_, offset + size);
  return offset;
}

void Arena::give_back(std::size_t offset, std::size_t bytes) {
  std::size_t size = aligned(bytes, alignment_);
  if (size == 0) return;  // a gap of nothing would stand in the way of a real one
  used_ -= size;
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      size += previous->second;
      remove_gap(previous);
    }
  }
  if (next != gaps_.end() && offset + size == next->first) {
    size += next->second;
    remove_gap(next);
  }
  add_gap(offset, size);
}

}  // namespace zeepo
