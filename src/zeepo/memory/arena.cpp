#include "zeepo/memory/arena.h"

#include <algorithm>
#include <iterator>

namespace zeepo {

Arena::Arena(std::size_t capacity_bytes, std::size_t alignment)
    : alignment_(alignment), capacity_(capacity_bytes / alignment * alignment) {
  if (capacity_ > 0) gaps_.emplace(0, capacity_);
}

std::optional<std::size_t> Arena::take(std::size_t bytes) {
  const std::size_t size = aligned(bytes, alignment_);
  if (size == 0) return 0;
  auto best = gaps_.end();
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    // What was never in use comes last, however much of it there is: a range that is just large enough then gives the
    // addresses of an endless one.
    if (best != gaps_.end() && gap->first + gap->second == capacity_) continue;
    if (gap->second >= size && (best == gaps_.end() || gap->second < best->second)) best = gap;
  }
  if (best == gaps_.end()) return std::nullopt;
  const auto [offset, gap_size] = *best;
  gaps_.erase(best);
  if (gap_size > size) gaps_.emplace(offset + size, gap_size - size);
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
      gaps_.erase(previous);
    }
  }
  if (next != gaps_.end() && offset + size == next->first) {
    size += next->second;
    gaps_.erase(next);
  }
  gaps_.emplace(offset, size);
}

}  // namespace zeepo
