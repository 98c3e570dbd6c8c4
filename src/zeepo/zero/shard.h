// How a unit's flat buffer is cut over the ranks: pure functions, so that a test can try every case.
#pragma once

#include <algorithm>
#include <cstdint>

namespace zeepo {

// Elements [begin, end) of a unit.
struct Extent {
  std::int64_t begin = 0, end = 0;
  std::int64_t elements() const { return end - begin; }
  bool empty() const { return begin >= end; }
  friend bool operator==(const Extent&, const Extent&) = default;
};

inline Extent common(const Extent& a, const Extent& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// f(part) for each part of the extent, cut at multiples of `size` from `origin` on.
template <class F>
void in_parts(const Extent& extent, std::int64_t origin, std::int64_t size, F&& f) {
  for (std::int64_t begin = extent.begin; begin < extent.end;) {
    const std::int64_t end = std::min(extent.end, origin + ((begin - origin) / size + 1) * size);
    f(Extent{begin, end});
    begin = end;
  }
}

// Equal shards of whole `align`-element pieces, large enough that `world` of them hold n elements.
inline std::int64_t shard_elements(std::int64_t n, int world, std::int64_t align) {
  const std::int64_t pieces = (n + align - 1) / align;
  return (pieces + world - 1) / world * align;
}

inline Extent shard_of(std::int64_t n, int rank, int world, std::int64_t align) {
  const std::int64_t size = shard_elements(n, world, align);
  return {rank * size, (rank + 1) * size};
}

}  // namespace zeepo
