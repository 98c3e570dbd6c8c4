// The extents of a tensor, outermost first. At most kMaxRank of them; copies are cheap.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace zeepo {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);

  int rank() const { return rank_; }
  // Negative indices count from the innermost extent: shape[-1] is the last.
  std::int64_t operator[](int i) const { return extents_[i < 0 ? rank_ + i : i]; }
  std::int64_t& operator[](int i) { return extents_[i < 0 ? rank_ + i : i]; }
  std::int64_t elements() const;
  // Product of all extents but the last; (..., n) seen as a matrix has this many rows.
  std::int64_t rows() const { return rank_ == 0 ? 1 : elements_before(rank_ - 1); }
  // The same shape with its last extent replaced.
  Shape with_last(std::int64_t extent) const;
  std::string str() const;  // "(2, 3)"

  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  std::int64_t elements_before(int end) const;

  std::array<std::int64_t, kMaxRank> extents_{};
  int rank_ = 0;
};

}  // namespace zeepo
