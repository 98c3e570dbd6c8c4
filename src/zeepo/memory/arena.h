// Which addresses of a range are in use: best fit, the lowest address among equals, the open end of the range only
// where nothing else fits; neighbours joined when given back.
//
// It holds no memory. The same sequence of calls always gives the same addresses, in every range that is large enough,
// so that a pass that ran dry has the addresses, and the peak, of the real one.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "zeepo/base/work_count.h"

namespace zeepo {

class Arena {
 public:
  static constexpr std::size_t kAlignment = 256;

  static constexpr std::size_t aligned(std::size_t bytes, std::size_t alignment = kAlignment) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  explicit Arena(std::size_t capacity_bytes, std::size_t alignment = kAlignment);

  // Offset of `bytes` (rounded up to the alignment) now in use; nothing when no gap is large enough.
  std::optional<std::size_t> take(std::size_t bytes);
  void give_back(std::size_t offset, std::size_t bytes);

  std::size_t capacity() const { return capacity_; }
  std::size_t used() const { return used_; }
  // The end of the highest address ever in use.
  std::size_t high_water() const { return high_water_; }

 private:
  std::size_t alignment_, capacity_, used_ = 0, high_water_ = 0;
  struct Gap {
    std::size_t size, offset;
  };
  // Counts what a search looks at.
  struct SmallerThenLower {
    bool operator()(const Gap& a, const Gap& b) const {
      count_work();
      return a.size != b.size ? a.size < b.size : a.offset < b.offset;
    }
  };
  void add_gap(std::size_t offset, std::size_t size);
  void remove_gap(std::map<std::size_t, std::size_t>::iterator gap);

  std::map<std::size_t, std::size_t> gaps_;  // offset to size
  std::set<Gap, SmallerThenLower> by_size_;  // the same but for the one at the end of the range
};

}  // namespace zeepo
