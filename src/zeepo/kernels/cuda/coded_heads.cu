#include "zeepo/kernels/coded_heads.h"

#include "zeepo/kernels/cuda/map.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kLanes = 32, kHeadsOfBlock = 8;
constexpr unsigned short kNanScale = 0x7fc0;

// Where the heads of rows are: element (row, head, 0), for rows of all of the batch.
template <class T>
struct Places {
  T* data;
  std::int64_t rows, heads, head_dim, batch_stride, row_stride;
  __device__ T* head(std::int64_t i) const {
    const std::int64_t row = i / heads, h = i % heads;
    return data + row / rows * batch_stride + row % rows * row_stride + h * head_dim;
  }
};

template <class T, class AnyHeads>
Places<T> places(const AnyHeads& heads) {
  return {heads.template as<T>(), heads.rows, heads.heads, heads.head_dim, heads.batch_stride, heads.row_stride};
}

// A warp has one head.
template <class T>
__global__ void __launch_bounds__(kLanes* kHeadsOfBlock)
    encode_kernel(Places<const T> from, Places<signed char> codes, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kHeadsOfBlock + threadIdx.x / kLanes;
  if (i >= count) return;
  const int lane = threadIdx.x % kLanes, n = static_cast<int>(from.head_dim);
  const T* const in = from.head(i);
  signed char* const out = codes.head(i);
  unsigned largest = 0;
  for (int d = lane; d < n; d += kLanes) largest = max(largest, __float_as_uint(widen(in[d])) & 0x7fffffffu);
  for (int apart = kLanes / 2; apart > 0; apart /= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, apart));
  const bool finite = largest < 0x7f800000u;
  const unsigned bits = __float_as_uint(__fdiv_rn(__uint_as_float(largest), 127.0f));
  const auto scale = finite ? static_cast<unsigned short>((bits + 0xffffu) >> 16) : kNanScale;
  const float unit = __uint_as_float(static_cast<unsigned>(scale) << 16);
  for (int d = lane; d < n; d += kLanes)
    out[d] = finite && scale != 0 ? static_cast<signed char>(rintf(__fdiv_rn(widen(in[d]), unit))) : 0;
  if (lane == 0) *reinterpret_cast<unsigned short*>(out + n) = scale;
}

template <class T>
__global__ void __launch_bounds__(kLanes* kHeadsOfBlock)
    expand_kernel(Places<const signed char> codes, Places<T> to, std::int64_t count) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kHeadsOfBlock + threadIdx.x / kLanes;
  if (i >= count) return;
  const int lane = threadIdx.x % kLanes, n = static_cast<int>(to.head_dim);
  const signed char* const in = codes.head(i);
  T* const out = to.head(i);
  const float unit = __uint_as_float(static_cast<unsigned>(*reinterpret_cast<const unsigned short*>(in + n)) << 16);
  for (int d = lane; d < n; d += kLanes) out[d] = narrow<T>(static_cast<float>(in[d]) * unit);
}

unsigned blocks_for(std::int64_t heads) { return static_cast<unsigned>(pieces(heads, kHeadsOfBlock)); }

}  // namespace

void encode_heads(CudaStream& stream, ConstHeads from, Heads codes) {
  const std::int64_t count = from.batch * from.rows * from.heads;
  if (count == 0) return;
  with_float_type(from.dtype, [&](auto zero) {
    using T = decltype(zero);
    encode_kernel<T><<<blocks_for(count), kLanes * kHeadsOfBlock, 0, stream.handle()>>>(
        places<const T>(from), places<signed char>(codes), count);
    check_launch();
  });
}

void expand_heads(CudaStream& stream, ConstHeads codes, Heads to) {
  const std::int64_t count = to.batch * to.rows * to.heads;
  if (count == 0) return;
  with_float_type(to.dtype, [&](auto zero) {
    using T = decltype(zero);
    expand_kernel<T><<<blocks_for(count), kLanes * kHeadsOfBlock, 0, stream.handle()>>>(
        places<const signed char>(codes), places<T>(to), count);
    check_launch();
  });
}

}  // namespace zeepo
