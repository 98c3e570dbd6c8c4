#include "zeepo/kernels/fp8.h"

#include <cuda_fp8.h>

#include "zeepo/kernels/cuda/rows.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr float kLargest = 448;  // of e4m3
constexpr int kThreads = 256, kAtOnce = 16, kTile = 64;

// fp32 without its sign is in the order of its bits, NaN above all: a maximum that does not depend on who comes first.
template <class T>
__global__ void __launch_bounds__(kThreads) largest_kernel(const T* x, std::int64_t packs, unsigned* largest) {
  constexpr int kAhead = 4;
  unsigned most = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; first < packs;
       first += kAhead * stride) {
    Pack<T, kPack> ahead[kAhead] = {};
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
      if (first + a * stride < packs) ahead[a] = pack_at<kPack>(x + (first + a * stride) * kPack);
#pragma unroll
    for (int a = 0; a < kAhead; ++a)
#pragma unroll
      for (int j = 0; j < kPack; ++j) most = max(most, __float_as_uint(fabsf(widen(ahead[a].at[j]))));
  }
  for (int apart = kWarp / 2; apart > 0; apart /= 2) most = max(most, __shfl_xor_sync(~0u, most, apart));
  if (threadIdx.x % kWarp == 0) atomicMax(largest, most);
}

// What x is multiplied by, from `factor` (2) as Fp8Matrix has it; one thread of all writes the factor itself.
__device__ __forceinline__ float inverse_factor(float* factor) {
  constexpr float kNothing = 1e-30f;  // far above where kLargest / largest is infinite; all become 0
  const float largest = factor[1];
  const bool nothing = largest < kNothing;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) factor[0] = nothing ? 1.0f : largest / kLargest;
  return nothing ? 1.0f : kLargest / largest;
}

template <class T>
__device__ __forceinline__ uint2 quantised(const Pack<T, kPack>& pack, float by) {
  float v[kPack];
  widen(pack, v);
  unsigned two[2] = {};
#pragma unroll
  for (int j = 0; j < kPack; j += 2) {
    const __nv_fp8x2_storage_t pair = __nv_cvt_float2_to_fp8x2({v[j] * by, v[j + 1] * by}, __NV_SATFINITE, __NV_E4M3);
    two[j / 4] |= static_cast<unsigned>(pair) << (8 * (j % 4));
  }
  return {two[0], two[1]};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    quantise_kernel(const T* x, std::int64_t sixteens, float* factor, uint4* values) {
  const float by = inverse_factor(factor);
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= sixteens) return;
  const Pack<T, kPack> low = pack_at<kPack>(x + i * kAtOnce), high = pack_at<kPack>(x + i * kAtOnce + kPack);
  const uint2 a = quantised(low, by), b = quantised(high, by);
  values[i] = {a.x, a.y, b.x, b.y};
}

// A block turns kTile rows and columns of x, (rows, columns), into rows of `values`, (columns, rows).
template <class T>
__global__ void __launch_bounds__(kThreads)
    quantise_transposed_kernel(const T* x, std::int64_t rows, std::int64_t columns, float* factor,
                               std::uint8_t* values) {
  __shared__ __align__(16) std::uint8_t tile[kTile][kTile + 16];
  const float by = inverse_factor(factor);
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kTile;
  constexpr int kPacks = kTile / kPack;
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kPacks; i += kThreads) {
    const int row = i / kPacks, column = i % kPacks * kPack;
    if (first_row + row >= rows || first_column + column >= columns) continue;
    const uint2 eight = quantised(pack_at<kPack>(x + (first_row + row) * columns + first_column + column), by);
#pragma unroll
    for (int j = 0; j < kPack; ++j)
      tile[column + j][row] = static_cast<std::uint8_t>((j < 4 ? eight.x : eight.y) >> (8 * (j % 4)));
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) / (kTile / kAtOnce);
  const int row = static_cast<int>(threadIdx.x) % (kTile / kAtOnce) * kAtOnce;
  if (first_row + row < rows && first_column + column < columns)
    *reinterpret_cast<uint4*>(values + (first_column + column) * rows + first_row + row) =
        *reinterpret_cast<const uint4*>(&tile[column][row]);
}

}  // namespace

void quantise(CudaStream& stream, ConstView x, Transpose transpose, Fp8Matrix q) {
  const bool turned = transpose == Transpose::yes;
  const std::int64_t rows = x.shape.rows(), columns = x.shape[-1];
  const std::int64_t q_rows = turned ? columns : rows, k = turned ? rows : columns;
  const bool fits = q.pairs.dtype == DType::i16 && q.pairs.shape == Shape{q_rows, k / 2} &&
                    q.factor.dtype == DType::f32 && q.factor.elements() == 2;
  if (!fits || k % kFp8Multiple != 0 || (turned && columns % kFp8Multiple != 0) ||
      !all_packable(x.data, static_cast<const void*>(q.pairs.data)))
    throw Error("quantise: x {}{} into {} {} with {} factors: must be aligned, with multiples of {} along k",
                x.shape.str(), turned ? "ᵀ" : "", name_of(q.pairs.dtype), q.pairs.shape.str(), q.factor.elements(),
                kFp8Multiple);
  if (x.elements() == 0) return;
  auto* factor = q.factor.as<float>();
  cuda_check(cudaMemsetAsync(factor, 0, q.factor.bytes(), stream.handle()));
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const std::int64_t packs = x.elements() / kPack;
    // Eight for each of a Hopper's 132 multiprocessors: a maximum is the same however it is cut.
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(pieces(packs, kThreads), 132 * 8));
    largest_kernel<T>
        <<<blocks, kThreads, 0, stream.handle()>>>(x.as<T>(), packs, reinterpret_cast<unsigned*>(factor + 1));
    check_launch();
    if (turned) {
      const dim3 grid(static_cast<unsigned>(pieces(columns, kTile)), static_cast<unsigned>(pieces(rows, kTile)));
      quantise_transposed_kernel<T>
          <<<grid, kThreads, 0, stream.handle()>>>(x.as<T>(), rows, columns, factor, q.pairs.as<std::uint8_t>());
    } else {
      const std::int64_t sixteens = x.elements() / kAtOnce;
      quantise_kernel<T><<<static_cast<unsigned>(pieces(sixteens, kThreads)), kThreads, 0, stream.handle()>>>(
          x.as<T>(), sixteens, factor, q.pairs.as<uint4>());
    }
  });
  check_launch();
}

}  // namespace zeepo
