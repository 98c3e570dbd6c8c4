#include "zeepo/base/error.h"
#include "zeepo/kernels/cuda/softmax_row.h"
#include "zeepo/kernels/softmax.h"

namespace zeepo {
namespace {

using namespace cuda;

// A block has one row. `dlogits` may be null, or the logits themselves. A target past the row, which the caller should
// have refused, makes its loss NaN: nobody on the device can throw.
template <int N, class T>
__global__ void __launch_bounds__(1024)
    cross_entropy_kernel(const T* logits, const std::int32_t* targets, int n, int kept_elements, float* losses,
                         T* dlogits, float grad_scale) {
  extern __shared__ __align__(16) std::byte room[];
  const std::int64_t start = static_cast<std::int64_t>(blockIdx.x) * n;
  const KeptRow<T> x{logits + start, reinterpret_cast<T*>(room), kept_elements};
  T* dx = dlogits ? dlogits + start : nullptr;
  const int target = targets[blockIdx.x];
  float v[N];
  if (target < 0 || target >= n) {
    if (threadIdx.x == 0) losses[blockIdx.x] = target < 0 ? 0.0f : NAN;
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = 0;
    if (dx)
      for (std::int64_t i = threadIdx.x * N; i < n; i += blockDim.x * N) store<N>(v, dx + i);
    return;
  }
  const float at_target = widen(x.x[target]);  // before anybody passes the barriers of row_sum and overwrites it
  const RowSum row = row_sum<N>(x, n);
  const float distance = row.max - at_target;
  if (threadIdx.x == 0) losses[blockIdx.x] = logf(row.sum) + distance;
  if (!dx) return;
  const float factor = grad_scale / row.sum;
  const float slope = grad_scale * (expf(-distance) / row.sum - 1.0f);
  for_row<N, false>(x, n, [&](int i, const Pack<T, N>& pack) {
    widen(pack, v);
#pragma unroll
    for (int j = 0; j < N; ++j) v[j] = exponential(v[j] - row.max) * factor;
    if (static_cast<unsigned>(target - i) < N) {
#pragma unroll
      for (int j = 0; j < N; ++j)
        if (i + j == target) v[j] = slope;
    }
    store<N>(v, dx + i);
  });
}

// Of a row that is read twice a block keeps what its shared memory holds, in whole packs.
std::int64_t kept_bytes(int gpu) {
  constexpr int kMost = 224 << 10, kOthers = 1 << 10, kPack = 16;
  return std::min(most_shared_bytes(gpu) - kOthers, kMost) / kPack * kPack;
}

}  // namespace

void cross_entropy(CudaStream& stream, ConstView logits, ConstView targets, View losses, View dlogits,
                   float grad_scale) {
  const std::int64_t rows = logits.shape.rows(), n = logits.shape[-1];
  const bool types = targets.dtype == DType::i32 && losses.dtype == DType::f32 &&
                     (!dlogits || (dlogits.dtype == logits.dtype && dlogits.shape == logits.shape));
  if (!types || targets.elements() != rows || losses.elements() != rows)
    throw Error(
        "cross_entropy: logits {} {}, targets {} {}, losses {} {}: must be floats (rows, n), int32 (rows) and fp32 "
        "(rows), the gradient as the logits",
        name_of(logits.dtype), logits.shape.str(), name_of(targets.dtype), targets.shape.str(), name_of(losses.dtype),
        losses.shape.str());
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(logits.data, dlogits.data, n), [&](auto pack) {
      const std::int64_t most_kept = kept_bytes(stream.device()) / static_cast<std::int64_t>(sizeof(T));
      const auto kept = static_cast<int>(dlogits ? std::min(n, most_kept) : 0);
      launch_rows(stream, "cross_entropy", cross_entropy_kernel<pack(), T>, rows, threads_for(n / pack, 1024),
                  static_cast<std::size_t>(kept) * sizeof(T), logits.as<T>(), targets.as<std::int32_t>(),
                  row_length("cross_entropy", n), kept, losses.as<float>(), dlogits.as<T>(), grad_scale);
    });
  });
}

}  // namespace zeepo
