#include "zeepo/base/shape.h"

#include "zeepo/base/error.h"

namespace zeepo {

Shape::Shape(std::initializer_list<std::int64_t> extents) {
  if (extents.size() > kMaxRank) throw Error("shape: {} extents, at most {}", extents.size(), kMaxRank);
  for (const auto extent : extents) {
    if (extent < 0) throw Error("shape: negative extent {}", extent);
    extents_[static_cast<std::size_t>(rank_++)] = extent;
  }
}

std::int64_t Shape::elements() const { return elements_before(rank_); }

std::int64_t Shape::elements_before(int end) const {
  std::int64_t n = 1;
  for (int i = 0; i < end; ++i) n *= extents_[static_cast<std::size_t>(i)];
  return n;
}

Shape Shape::with_last(std::int64_t extent) const {
  Shape result = *this;
  result[-1] = extent;
  return result;
}

std::string Shape::str() const {
  std::string text = "(";
  for (int i = 0; i < rank_; ++i) text += fmt::format("{}{}", i ? ", " : "", (*this)[i]);
  return text + ")";
}

}  // namespace zeepo
