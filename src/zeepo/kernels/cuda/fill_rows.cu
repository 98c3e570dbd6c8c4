#include "zeepo/kernels/cuda/fill_rows.h"

#include "zeepo/kernels/cuda/rows.h"

namespace zeepo::cuda {
namespace {

// A block has one row.
template <class T>
__global__ void __launch_bounds__(256) fill_rows_kernel(const T* row, std::int64_t n, float* y) {
  for (std::int64_t j = threadIdx.x; j < n; j += blockDim.x) y[blockIdx.x * n + j] = widen(row[j]);
}

}  // namespace

void fill_rows(CudaStream& stream, ConstView row, View y) {
  const std::int64_t n = row.elements();
  with_float_type(row.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch_rows(stream, "fill_rows", fill_rows_kernel<T>, y.shape.rows(), threads_for(n, 256), 0, row.as<T>(), n,
                y.as<float>());
  });
}

}  // namespace zeepo::cuda
