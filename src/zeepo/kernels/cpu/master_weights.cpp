#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/targets.h"
#include "zeepo/kernels/optimizer.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/master_weights.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/master_weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

void write_master_range(const float* fp32, const Weights& to, std::int64_t begin, std::int64_t end) {
  with_weights(to, begin, [&](auto weights) HWY_ATTR {
    sweep(end - begin,
          [&](std::int64_t i, auto count) HWY_ATTR { weights.put(load(fp32 + begin + i, count), i, count); });
  });
}

void read_master_range(const Weights& from, float* fp32, std::int64_t begin, std::int64_t end) {
  with_weights(from, begin, [&](auto weights) HWY_ATTR {
    sweep(end - begin,
          [&](std::int64_t i, auto count) HWY_ATTR { store(weights.get(i, count), fp32 + begin + i, count); });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(write_master_range);
HWY_EXPORT(read_master_range);

}  // namespace

void write_master(CpuStream& stream, ConstView fp32, Weights to) {
  stream.pool().for_range(fp32.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(write_master_range)(fp32.as<float>(), to, begin, end);
  });
}

void read_master(CpuStream& stream, Weights from, View fp32) {
  stream.pool().for_range(fp32.elements(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(read_master_range)(from, fp32.as<float>(), begin, end);
  });
}

}  // namespace zeepo
#endif
