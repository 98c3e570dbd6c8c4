#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/comm/cuda/rank_sum.h"
#include "zeepo/device/cuda/check.h"

namespace zeepo {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kMostBlocks = 1024;

__device__ float widened(float x) { return x; }
__device__ float widened(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float widened(__half x) { return __half2float(x); }
__device__ void round_to(float x, float& y) { y = x; }
__device__ void round_to(float x, __nv_bfloat16& y) { y = __float2bfloat16_rn(x); }
__device__ void round_to(float x, __half& y) { y = __float2half_rn(x); }

template <class T>
__device__ float rounded(float x) {
  T y;
  round_to(x, y);
  return widened(y);
}

// No __restrict__: sum may be one of the parts.
template <class In, class Out, class Rounded>
__global__ void sum_parts(const In* parts, const In* own_parts, int own, int ranks, std::int64_t n, bool onto,
                          Out* sum) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
    float total = onto ? widened(sum[i]) : 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const float value = widened((rank == own ? own_parts : parts)[rank * n + i]);
      total = rank == 0 && !onto ? value : total + value;  // 0 + -0 would not be -0
    }
    round_to(rounded<Rounded>(total), sum[i]);
  }
}

template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f16: return f(__half{});
    default: throw Error("a sum over ranks of {}: must be fp32, bf16 or fp16", name_of(dtype));
  }
}

}  // namespace

void sum_in_rank_order(cudaStream_t stream, const RankParts& parts, View sum, const SumInto& how) {
  const std::int64_t n = sum.elements();
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(std::min((n + kThreads - 1) / kThreads, kMostBlocks));
  with_type(parts.parts.dtype, [&](auto in) {
    with_type(sum.dtype, [&](auto out) {
      with_type(how.rounded_to, [&](auto rounded_to) {
        using In = decltype(in);
        using Out = decltype(out);
        sum_parts<In, Out, decltype(rounded_to)><<<blocks, kThreads, 0, stream>>>(
            parts.parts.as<In>(), parts.own_parts.as<In>(), parts.own, parts.ranks, n, how.onto, sum.as<Out>());
      });
    });
  });
  check_launch();
}

}  // namespace zeepo
