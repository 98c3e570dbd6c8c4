#include "zeepo/kernels/rotary.h"

#include "zeepo/kernels/cuda/head_rows.h"
#include "zeepo/kernels/cuda/rows.h"

namespace zeepo {
namespace {

using namespace cuda;

// A block has one row; a thread has packs d and d + half of some heads.
template <int N, class T>
__global__ void __launch_bounds__(256) rotate_kernel(HeadRows<T> x, int heads, const float* cosines, const float* sines,
                                                     std::int64_t first_position, float sign) {
  const int half = x.head_dim / 2, packs = half / N;
  T* row = x.row(blockIdx.x);
  const std::int64_t position = first_position + blockIdx.x % x.rows;
  for (int i = static_cast<int>(threadIdx.x); i < heads * packs; i += static_cast<int>(blockDim.x)) {
    const int d = i % packs * N;
    T* lower = row + i / packs * x.head_dim + d;
    float a[N], b[N], c[N], s[N], turned[N];
    load<N>(lower, a);
    load<N>(lower + half, b);
    load<N>(cosines + position * half + d, c);
    load<N>(sines + position * half + d, s);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      s[j] *= sign;
      turned[j] = __fmaf_rn(-b[j], s[j], a[j] * c[j]);
      b[j] = __fmaf_rn(a[j], s[j], b[j] * c[j]);
    }
    store<N>(turned, lower);
    store<N>(b, lower + half);
  }
}

}  // namespace

void rotate(CudaStream& stream, Heads x, ConstView cosines, ConstView sines, std::int64_t first_position, Turn turn) {
  const std::int64_t half = x.head_dim / 2;
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(packable(x) && all_packable(half, cosines.data, sines.data), [&](auto pack) {
      launch_rows(stream, "rotate", rotate_kernel<pack(), T>, x.batch * x.rows,
                  threads_for(x.heads * (half / pack), 256), 0, HeadRows<T>(x), static_cast<int>(x.heads),
                  cosines.as<float>(), sines.as<float>(), first_position, turn == Turn::forward ? 1.0f : -1.0f);
    });
  });
}

}  // namespace zeepo
