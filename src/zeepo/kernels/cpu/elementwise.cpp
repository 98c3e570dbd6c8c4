#include "zeepo/kernels/elementwise.h"

#include <algorithm>
#include <cstring>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/elementwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

void convert(ConstView x, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(x.dtype, [&](auto from) HWY_ATTR {
    with_float_type(y.dtype, [&](auto to) HWY_ATTR {
      const auto* in = x.as<decltype(from)>() + begin;
      auto* out = y.as<decltype(to)>() + begin;
      sweep(end - begin, [&](std::int64_t i, auto count) HWY_ATTR { store(load(in + i, count), out + i, count); });
    });
  });
}

void add_range(ConstView a, ConstView b, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(y.dtype, [&](auto sum_type) HWY_ATTR {
    with_float_type(b.dtype, [&](auto addend_type) HWY_ATTR {
      const auto* left = a.as<decltype(sum_type)>() + begin;
      const auto* right = b.as<decltype(addend_type)>() + begin;
      auto* out = y.as<decltype(sum_type)>() + begin;
      sweep(end - begin, [&](std::int64_t i, auto count) HWY_ATTR {
        store(hn::Add(load(left + i, count), load(right + i, count)), out + i, count);
      });
    });
  });
}

void add_rounded_range(ConstView a, ConstView b, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(b.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto* left = a.as<float>() + begin;
    const auto* right = b.as<T>() + begin;
    auto* out = y.as<float>() + begin;
    HWY_ALIGN T rounded[hn::MaxLanes(hn::ScalableTag<float>())];
    sweep(end - begin, [&](std::int64_t i, auto count) HWY_ATTR {
      store(hn::Add(load(left + i, count), load(right + i, count)), rounded, count);
      store(load(rounded, count), out + i, count);
    });
  });
}

void scale_range(ConstView x, float factor, View y, std::int64_t begin, std::int64_t end) {
  with_float_type(y.dtype, [&](auto zero_of_type) HWY_ATTR {
    using T = decltype(zero_of_type);
    const auto* in = x.as<T>() + begin;
    auto* out = y.as<T>() + begin;
    const auto factors = splat(factor);
    sweep(end - begin,
          [&](std::int64_t i, auto count) HWY_ATTR { store(hn::Mul(load(in + i, count), factors), out + i, count); });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(convert);
HWY_EXPORT(add_range);
HWY_EXPORT(add_rounded_range);
HWY_EXPORT(scale_range);

}  // namespace

void fill(CpuStream& stream, View y, float value) {
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    if (value == 0) {  // of any type, and the same bits in all of them: −0 is stored as 0
      auto* bytes = y.as<std::byte>();
      std::memset(bytes + static_cast<std::size_t>(begin) * size_of(y.dtype), 0,
                  static_cast<std::size_t>(end - begin) * size_of(y.dtype));
      return;
    }
    with_float_type(y.dtype, [&](auto zero_of_type) {
      using T = decltype(zero_of_type);
      std::fill(y.as<T>() + begin, y.as<T>() + end, from_float<T>(value));
    });
  });
}

void copy(CpuStream& stream, ConstView x, View y) {
  if (x.dtype == y.dtype && x.data == y.data) return;
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    if (x.dtype != y.dtype) return HWY_DYNAMIC_DISPATCH(convert)(x, y, begin, end);
    const auto width = size_of(y.dtype);
    const auto first = static_cast<std::size_t>(begin) * width;
    std::memcpy(y.as<std::byte>() + first, x.as<std::byte>() + first, static_cast<std::size_t>(end - begin) * width);
  });
}

void add(CpuStream& stream, ConstView a, ConstView b, View y) {
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_range)(a, b, y, begin, end);
  });
}

void add_rounded(CpuStream& stream, ConstView a, ConstView b, View y) {
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_rounded_range)(a, b, y, begin, end);
  });
}

void scale(CpuStream& stream, ConstView x, float factor, View y) {
  stream.pool().for_range(y.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(scale_range)(x, factor, y, begin, end);
  });
}

}  // namespace zeepo
#endif
