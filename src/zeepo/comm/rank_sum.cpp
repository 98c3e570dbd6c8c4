#include "zeepo/comm/rank_sum.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/comm/float_types.h"

namespace zeepo {
namespace {

constexpr std::int64_t kBlock = 1024;         // fp32 sums kept in the first cache while the ranks' values pass
constexpr std::int64_t kGrain = 64 * kBlock;  // a task of the pool

template <class T>
void round_all(float* values, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) values[i] = to_float(from_float<T>(values[i]));
}

template <class In, class Out>
void sum_range(std::span<const ConstView> parts, View sum, const SumInto& how, std::int64_t begin, std::int64_t end) {
  float total[kBlock];
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t n = std::min(kBlock, end - at);
    if (how.onto) {
      const Out* held = sum.as<Out>() + at;
      for (std::int64_t i = 0; i < n; ++i) total[i] = to_float(held[i]);
    } else {  // not 0 + the first part: 0 + -0 would not be -0
      const In* first = parts[0].as<In>() + at;
      for (std::int64_t i = 0; i < n; ++i) total[i] = to_float(first[i]);
    }
    for (const ConstView& part : parts.subspan(how.onto ? 0 : 1)) {
      const In* values = part.as<In>() + at;
      for (std::int64_t i = 0; i < n; ++i) total[i] += to_float(values[i]);
    }
    if (how.rounded_to == DType::bf16) round_all<bf16>(total, n);
    if (how.rounded_to == DType::f16) round_all<f16>(total, n);
    Out* out = sum.as<Out>() + at;
    for (std::int64_t i = 0; i < n; ++i) out[i] = from_float<Out>(total[i]);
  }
}

template <class V>
V slice(V x, int part, int parts) {
  const std::int64_t n = x.elements() / parts;
  const auto offset = static_cast<std::size_t>(n * part) * size_of(x.dtype);
  return {x.template as<std::byte>() + offset, x.dtype, {n}};
}

}  // namespace

void sum_in_rank_order(CpuStream& stream, std::span<const ConstView> parts, View sum, const SumInto& how) {
  with_float_type(parts[0].dtype, "a sum over ranks", [&]<class In>(In) {
    with_float_type(sum.dtype, "a sum over ranks", [&]<class Out>(Out) {
      stream.pool().for_range(sum.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        sum_range<In, Out>(parts, sum, how, begin, end);
      });
    });
  });
}

ConstView part_of(ConstView x, int part, int parts) { return slice(x, part, parts); }
View part_of(View x, int part, int parts) { return slice(x, part, parts); }

}  // namespace zeepo
