#include "zeepo/kernels/cuda/partial_sums.h"

#include <algorithm>

#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda {
namespace {

constexpr int kColumns = 32, kLines = 32;

// Line l of the block adds partials l, l + kLines, ... of its column; the lines' sums are then added as a tree.
template <class T>
__global__ void __launch_bounds__(kColumns* kLines)
    add_partials_kernel(const float* partials, std::int64_t blocks, std::int64_t stride, std::int64_t n, bool add,
                        T* out) {
  __shared__ float sums[kLines][kColumns];
  const unsigned column = threadIdx.x % kColumns, line = threadIdx.x / kColumns;
  const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kColumns + column;
  float sum = 0;
  if (j < n)
#pragma unroll 8
    for (std::int64_t block = line; block < blocks; block += kLines) sum += partials[block * stride + j];
  sums[line][column] = sum;
  for (unsigned half = kLines / 2; half > 0; half /= 2) {
    __syncthreads();
    if (line < half) sums[line][column] += sums[line + half][column];
  }
  if (line == 0 && j < n) out[j] = narrow<T>(add ? widen(out[j]) + sums[0][column] : sums[0][column]);
}

}  // namespace

std::int64_t row_blocks(std::int64_t rows, std::int64_t n, std::int64_t kinds, std::int64_t threads) {
  // 512 threads for each of a Hopper's 132 multiprocessors, all at work at the same time; on other GPUs as many, so
  // that sums are the same.
  constexpr std::int64_t kRoom = CudaStream::kWorkspaceBytes / 4 / sizeof(float);
  const std::int64_t most = 132 * 512 / threads;
  const std::int64_t fitting = std::max<std::int64_t>(1, kRoom / std::max<std::int64_t>(1, n * kinds));
  return std::min({rows, most, fitting});
}

void add_partial_sums(CudaStream& stream, const float* partials, std::int64_t blocks, std::int64_t stride, View out,
                      Write write) {
  const std::int64_t n = out.elements();
  if (n == 0) return;
  with_float_type(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    add_partials_kernel<T><<<static_cast<unsigned>(pieces(n, kColumns)), kColumns * kLines, 0, stream.handle()>>>(
        partials, blocks, stride, n, write == Write::add, out.as<T>());
  });
  check_launch();
}

}  // namespace zeepo::cuda
