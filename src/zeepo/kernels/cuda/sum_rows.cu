#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/cuda/partial_sums.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kLines = 8;  // of rows in a block, each a warp wide

// Block (c, b) sums rows [b·rows_each, (b+1)·rows_each) of kWarp packs of columns: line l takes every kLines-th row,
// and the lines' sums are added in order.
template <int N, class T>
__global__ void __launch_bounds__(kLines* kWarp)
    sum_rows_kernel(const T* x, std::int64_t rows, std::int64_t n, std::int64_t rows_each, float* partials) {
  __shared__ float sums[kLines][kWarp * N];
  const unsigned line = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kWarp * N, column = first + lane * N;
  const std::int64_t begin = blockIdx.y * rows_each, end = min(rows, begin + rows_each);
  float sum[N] = {};
  if (column < n)
#pragma unroll 4
    for (std::int64_t r = begin + line; r < end; r += kLines) {
      float v[N];
      load<N>(x + r * n + column, v);
#pragma unroll
      for (int j = 0; j < N; ++j) sum[j] += v[j];
    }
#pragma unroll
  for (int j = 0; j < N; ++j) sums[line][lane * N + j] = sum[j];
  __syncthreads();
  for (int j = static_cast<int>(threadIdx.x); j < kWarp * N && first + j < n; j += kLines * kWarp) {
    float total = 0;
#pragma unroll
    for (int l = 0; l < kLines; ++l) total += sums[l][j];
    partials[blockIdx.y * n + first + j] = total;
  }
}

}  // namespace

void sum_rows(CudaStream& stream, ConstView x, View sums, Write write) {
  const std::int64_t n = x.shape[-1], rows = x.shape.rows();
  if (sums.elements() != n || (sums.dtype != x.dtype && sums.dtype != DType::f32))
    throw Error("sum_rows: rows of {} {} do not fit sums of {} {}", name_of(x.dtype), x.shape.str(),
                name_of(sums.dtype), sums.shape.str());
  if (n == 0) return;
  constexpr std::int64_t kRowsEach = 128;
  const std::int64_t most = row_blocks(std::max<std::int64_t>(1, pieces(rows, kRowsEach)), n, 1, kLines * kWarp);
  const std::int64_t rows_each = std::max<std::int64_t>(1, pieces(rows, most)), blocks = pieces(rows, rows_each);
  auto* partials = reinterpret_cast<float*>(stream.workspace(static_cast<std::size_t>(blocks * n) * sizeof(float)));
  if (blocks > 0)
    with_float_type(x.dtype, [&](auto zero) {
      using T = decltype(zero);
      with_pack(all_packable(x.data, n), [&](auto pack) {
        const dim3 grid(static_cast<unsigned>(pieces(n, kWarp * pack)), static_cast<unsigned>(blocks));
        sum_rows_kernel<pack(), T>
            <<<grid, kLines * kWarp, 0, stream.handle()>>>(x.as<T>(), rows, n, rows_each, partials);
      });
    });
  check_launch();
  add_partial_sums(stream, partials, blocks, n, sums, write);
}

}  // namespace zeepo
