#include "zeepo/kernels/copy_heads.h"

#include "zeepo/kernels/cuda/head_rows.h"
#include "zeepo/kernels/cuda/rows.h"

namespace zeepo {
namespace {

using namespace cuda;

// A block has one row of `width` elements.
template <int N, class T>
__global__ void __launch_bounds__(256) copy_heads_kernel(HeadRows<const T> from, HeadRows<T> to, int width) {
  const T* in = from.row(blockIdx.x);
  T* out = to.row(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x) * N; i < width; i += static_cast<int>(blockDim.x) * N)
    *reinterpret_cast<Pack<T, N>*>(out + i) = *reinterpret_cast<const Pack<T, N>*>(in + i);
}

}  // namespace

void copy_heads(CudaStream& stream, ConstHeads from, Heads to) {
  const std::int64_t width = from.heads * from.head_dim;
  with_float_type(from.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(packable(from) && packable(to), [&](auto pack) {
      launch_rows(stream, "copy_heads", copy_heads_kernel<pack(), T>, from.batch * from.rows,
                  threads_for(width / pack, 256), 0, HeadRows<const T>(from), HeadRows<T>(to), static_cast<int>(width));
    });
  });
}

}  // namespace zeepo
