#include <limits>

#include "zeepo/kernels/cuda/head_rows.h"
#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/cuda/row_in_registers.h"
#include "zeepo/kernels/norm.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kThreads = 256;

// Some lanes of a warp, a power of two, have a head together: a thread kPacks packs of it. kAtOnce heads of a group are
// under way at the same time, neighbours.
struct Groups {
  int lanes;
  std::uint32_t count, heads;  // heads of all rows; of a row

  __device__ unsigned own() const { return threadIdx.x / lanes; }
  __device__ int first() const { return static_cast<int>(threadIdx.x) % lanes; }
  __device__ std::uint32_t in_all() const { return gridDim.x * (kThreads / lanes); }
  __device__ std::uint32_t begin() const { return blockIdx.x * (kThreads / lanes) + own(); }
  __device__ float sum(float x) const {
    for (int apart = lanes / 2; apart > 0; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    return x;
  }
};

template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_heads_kernel(Groups groups, HeadRows<const T> x, const T* weight, float eps, HeadRows<T> y, float* rstds) {
  constexpr int kAtOnce = kPacks == 1 ? 4 : 1;
  const int n = x.head_dim;
  Pack<T, N> head[kAtOnce][kPacks];
  const auto each = [&](const auto& f) {
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) f(k, groups.begin() * kAtOnce + k);
  };
  const auto packs = [&](std::uint32_t i, const auto& f) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int j = (p * groups.lanes + groups.first()) * N;
      if (i < groups.count && j < n) f(p, j);
    }
  };
  each([&](int k, std::uint32_t i) {
    packs(i, [&](int p, int j) { head[k][p] = pack_at<N>(x.head(i / groups.heads, i % groups.heads) + j); });
  });
  each([&](int k, std::uint32_t i) {
    float squares = 0;
    packs(i, [&](int p, int) {
      float v[N];
      widen(head[k][p], v);
#pragma unroll
      for (int j = 0; j < N; ++j) squares = __fmaf_rn(v[j], v[j], squares);
    });
    const float rstd = 1.0f / sqrtf(groups.sum(squares) / static_cast<float>(n) + eps);
    if (rstds && groups.first() == 0 && i < groups.count) rstds[i] = rstd;
    packs(i, [&](int p, int at) {
      float v[N], w[N];
      widen(head[k][p], v);
      load<N>(weight + at, w);
#pragma unroll
      for (int j = 0; j < N; ++j) v[j] = v[j] * rstd * w[j];
      store<N>(v, y.head(i / groups.heads, i % groups.heads) + at);
    });
  });
}

// As rms_norm_backward; a thread sums its part of dweight in registers, and the block adds those of its groups.
template <int N, int kPacks, class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_heads_backward_kernel(Groups groups, HeadRows<const T> dy, HeadRows<const T> x, const T* weight,
                                   const float* rstds, HeadRows<T> dx, float* partials) {
  extern __shared__ __align__(16) float sums[];  // (kThreads / lanes, n)
  constexpr int kAtOnce = kPacks == 1 ? 4 : 1;
  const int n = x.head_dim;
  float dweight[kPacks][N] = {};
  const auto packs = [&](std::uint32_t i, const auto& f) {
#pragma unroll
    for (int p = 0; p < kPacks; ++p) {
      const int j = (p * groups.lanes + groups.first()) * N;
      if (i < groups.count && j < n) f(p, j);
    }
  };
  // All groups of a warp take as many turns, so that they meet in the sums.
  const std::uint32_t turns = (groups.count + groups.in_all() * kAtOnce - 1) / (groups.in_all() * kAtOnce);
  for (std::uint32_t turn = 0; turn < turns; ++turn) {
    Pack<T, N> head[kAtOnce][kPacks], gradient[kAtOnce][kPacks];
    const std::uint32_t begin = (turn * groups.in_all() + groups.begin()) * kAtOnce;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      packs(begin + k, [&](int p, int j) {
        const std::uint32_t row = (begin + k) / groups.heads, h = (begin + k) % groups.heads;
        head[k][p] = pack_at<N>(x.head(row, h) + j);
        gradient[k][p] = pack_at<N>(dy.head(row, h) + j);
      });
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const std::uint32_t i = begin + k;
      const float rstd = i < groups.count ? rstds[i] : 0.0f;
      float sum_gh = 0;
      packs(i, [&](int p, int at) {
        float d[N], v[N], w[N];
        widen(gradient[k][p], d);
        widen(head[k][p], v);
        load<N>(weight + at, w);
#pragma unroll
        for (int j = 0; j < N; ++j) {
          v[j] *= rstd;
          sum_gh = __fmaf_rn(d[j] * w[j], v[j], sum_gh);
          dweight[p][j] = __fmaf_rn(d[j], v[j], dweight[p][j]);
        }
      });
      const float mean_gh = groups.sum(sum_gh) / static_cast<float>(n);
      packs(i, [&](int p, int at) {
        float d[N], v[N], w[N];
        widen(gradient[k][p], d);
        widen(head[k][p], v);
        load<N>(weight + at, w);
#pragma unroll
        for (int j = 0; j < N; ++j) d[j] = __fmaf_rn(-(v[j] * rstd), mean_gh, d[j] * w[j]) * rstd;
        store<N>(d, dx.head(i / groups.heads, i % groups.heads) + at);
      });
    }
  }
  packs(0, [&](int p, int at) { store<N>(dweight[p], sums + groups.own() * n + at); });
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < n; j += kThreads) {
    float sum = 0;
    for (int group = 0; group < kThreads / groups.lanes; ++group) sum += sums[group * n + j];
    partials[static_cast<std::int64_t>(blockIdx.x) * n + j] = sum;
  }
}

// Calls f(pack, packs a thread, lanes of a group).
template <class F>
void with_groups(const char* op, std::int64_t head_dim, bool packed, const F& f) {
  const auto cut = [&](auto pack, auto packs_each) {
    int lanes = 1;
    while (std::int64_t{lanes} * pack * packs_each < head_dim) lanes *= 2;
    if (lanes > kWarp) throw_row_too_long(op, head_dim, std::int64_t{kWarp} * pack * packs_each);
    f(pack, packs_each, lanes);
  };
  if (packed)
    cut(std::integral_constant<int, kPack>(), std::integral_constant<int, 1>());
  else
    cut(std::integral_constant<int, 1>(), std::integral_constant<int, 16>());
}

Groups groups_of(const Heads& x, int lanes) {
  const std::int64_t count = x.batch * x.rows * x.heads;
  if (count > std::numeric_limits<std::int32_t>::max())
    throw Error("rms_norm_heads: {} heads at once; the kernel counts to 2^31", count);
  return {lanes, static_cast<std::uint32_t>(count), static_cast<std::uint32_t>(x.heads)};
}

}  // namespace

void rms_norm_heads(CudaStream& stream, ConstHeads x, ConstView weight, float eps, Heads y, View rstd) {
  const std::int64_t count = y.batch * y.rows * y.heads;
  with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = packable(x) && packable(y) && packable(weight.data);
    with_groups("rms_norm_heads", y.head_dim, packed, [&](auto pack, auto packs_each, int lanes) {
      const std::int64_t heads_a_block = kThreads / lanes * (packs_each == 1 ? 4 : 1);
      launch_rows(stream, "rms_norm_heads", rms_norm_heads_kernel<pack(), packs_each(), T>,
                  pieces(count, heads_a_block), kThreads, 0, groups_of(y, lanes), HeadRows<const T>(x), weight.as<T>(),
                  eps, HeadRows<T>(y), rstd.as<float>());
    });
  });
}

void rms_norm_heads_backward(CudaStream& stream, ConstHeads dy, ConstHeads x, ConstView weight, ConstView rstd,
                             Heads dx, View dweight, Write write_dweight) {
  const std::int64_t count = dx.batch * dx.rows * dx.heads, n = dx.head_dim;
  if (count == 0) return;
  with_float_type(dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool packed = packable(dy) && packable(x) && packable(dx) && packable(weight.data);
    with_groups("rms_norm_heads_backward", n, packed, [&](auto pack, auto packs_each, int lanes) {
      const std::int64_t blocks = row_blocks(pieces(count, kThreads / lanes), n, 1, kThreads);
      const auto bytes = static_cast<std::size_t>(n) * sizeof(float);
      auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks) * bytes));
      launch_rows(stream, "rms_norm_heads_backward", rms_norm_heads_backward_kernel<pack(), packs_each(), T>, blocks,
                  kThreads, static_cast<std::size_t>(kThreads / lanes) * bytes, groups_of(dx, lanes),
                  HeadRows<const T>(dy), HeadRows<const T>(x), weight.as<T>(), rstd.as<float>(), HeadRows<T>(dx),
                  partials);
      if (dweight) add_partial_sums(stream, partials, blocks, n, dweight, write_dweight);
    });
  });
}

}  // namespace zeepo
