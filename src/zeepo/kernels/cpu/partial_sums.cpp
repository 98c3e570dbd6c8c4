#include "zeepo/kernels/cpu/partial_sums.h"

#include <algorithm>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/partial_sums.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

void add_partial_columns(const float* partials, std::int64_t blocks, std::int64_t stride, View out, Write write,
                         std::int64_t begin, std::int64_t end) {
  with_float_type(out.dtype, [&](auto zero_of_type) HWY_ATTR {
    auto* sums = out.as<decltype(zero_of_type)>() + begin;
    sweep(end - begin, [&](std::int64_t j, auto count) HWY_ATTR {
      auto sum = zero();
      for (std::int64_t block = 0; block < blocks; ++block)
        sum = hn::Add(sum, load(partials + block * stride + begin + j, count));
      if (write == Write::add) sum = hn::Add(load(sums + j, count), sum);
      store(sum, sums + j, count);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(add_partial_columns);

}  // namespace

RowBlocks row_blocks(std::int64_t rows) {
  const auto rows_per_block = std::max<std::int64_t>(16, (rows + 63) / 64);
  return {rows_per_block, (rows + rows_per_block - 1) / rows_per_block};
}

void add_partial_sums(CpuStream& stream, const float* partials, std::int64_t blocks, std::int64_t stride, View out,
                      Write write) {
  constexpr std::int64_t kColumns = 1024;
  stream.pool().for_range(out.elements(), kColumns, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_partial_columns)(partials, blocks, stride, out, write, begin, end);
  });
}

}  // namespace zeepo
#endif
