#include "zeepo/kernels/rotary.h"

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/rotary.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

void rotate_rows(const Heads& x, const float* cosines, const float* sines, std::int64_t first_position, Turn turn,
                 std::int64_t begin, std::int64_t end) {
  const auto half = x.head_dim / 2;
  const auto sign = splat(turn == Turn::forward ? 1.0f : -1.0f);
  with_float_type(x.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    for (std::int64_t r = begin; r < end; ++r) {
      const auto position = first_position + r % x.rows;
      const auto *cosine = cosines + position * half, *sine = sines + position * half;
      for (std::int64_t h = 0; h < x.heads; ++h) {
        auto* lower = x.as<T>() + r / x.rows * x.batch_stride + r % x.rows * x.row_stride + h * x.head_dim;
        auto* upper = lower + half;
        sweep(half, [&](std::int64_t i, auto count) HWY_ATTR {
          const auto a = load(lower + i, count), b = load(upper + i, count);
          const auto c = load(cosine + i, count), s = hn::Mul(load(sine + i, count), sign);
          store(hn::NegMulAdd(b, s, hn::Mul(a, c)), lower + i, count);
          store(hn::MulAdd(a, s, hn::Mul(b, c)), upper + i, count);
        });
      }
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(rotate_rows);

}  // namespace

void rotate(CpuStream& stream, Heads x, ConstView cosines, ConstView sines, std::int64_t first_position, Turn turn) {
  const auto rows = x.batch * x.rows;
  stream.pool().for_range(rows, rows_per_task(x.heads * x.head_dim), [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(rotate_rows)(x, cosines.as<float>(), sines.as<float>(), first_position, turn, begin, end);
  });
}

}  // namespace zeepo
#endif
