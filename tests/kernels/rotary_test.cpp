#include "zeepo/kernels/rotary.h"

#include "tests/kernels/kernel_checks.h"

namespace zeepo {
namespace {

struct Angles {
  TypedValues cosines, sines;
};
Angles random_angles(std::int64_t positions, std::int64_t half) {
  Angles angles{TypedValues(DType::f32, {positions, half}), TypedValues(DType::f32, {positions, half})};
  for (std::int64_t i = 0; i < positions * half; ++i) {
    const float angle = 6.28f * uniform({9}, static_cast<std::uint64_t>(i));
    angles.cosines.set(i, std::cos(angle));
    angles.sines.set(i, std::sin(angle));
  }
  return angles;
}

TEST(Rotate, MatchesDoublesAndLeavesTheRestAlone) {
  Threads threads(2);
  constexpr std::int64_t kBatch = 2, kTime = 13, kHeads = 3, kFirst = 5, kPosition = 4;
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t dim : {2, 6, 32, 64, 80}) {
      const std::int64_t width = kFirst + kHeads * dim + 7, half = dim / 2;
      const auto [cosines, sines] = random_angles(kPosition + kTime, half);
      const auto x = TypedValues::random(dtype, {kBatch, kTime, width}, 1);
      auto y = x;
      rotate(threads.stream, heads_of(y.view(), kFirst, kHeads, dim), cosines.view(), sines.view(), kPosition,
             Turn::forward);
      for (std::int64_t i = 0; i < x.elements(); ++i) {
        const auto column = i % width - kFirst, t = i / width % kTime;
        double expected = x[i], size = std::abs(x[i]);
        if (column >= 0 && column < kHeads * dim) {
          const auto d = column % dim, angle = (kPosition + t) * half + d % half;
          const double other = d < half ? -x[i + half] : x[i - half];
          expected = x[i] * cosines[angle] + other * sines[angle];
          size = std::max(size, std::abs(other));
        }
        ASSERT_NEAR(y[i], expected, allowed_error(dtype, expected, 0) + 2e-7 * size) << name_of(dtype) << " " << dim;
      }
    }
}

TEST(Rotate, BackwardUndoesForward) {
  Threads threads(2);
  const auto [cosines, sines] = random_angles(50, 20);
  const auto x = TypedValues::random(DType::f32, {3, 50, 120}, 1);
  auto y = x;
  rotate(threads.stream, heads_of(y.view(), 0, 3, 40), cosines.view(), sines.view(), 0, Turn::forward);
  rotate(threads.stream, heads_of(y.view(), 0, 3, 40), cosines.view(), sines.view(), 0, Turn::backward);
  for (std::int64_t i = 0; i < x.elements(); ++i) ASSERT_NEAR(y[i], x[i], 2e-6);
}

}  // namespace
}  // namespace zeepo
