#include <algorithm>

#include "zeepo/kernels/coded_weights.h"
#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/cuda/map.h"
#include "zeepo/kernels/embed_codes.h"

namespace zeepo {
namespace {

using namespace cuda;

constexpr int kLanes = 32, kRowsOfBlock = 8;

__device__ __forceinline__ float scale_at(const std::byte* scales, int i) {
  return __uint_as_float(static_cast<unsigned>(reinterpret_cast<const unsigned short*>(scales)[i]) << 16);
}

// A warp expands a row: a lane has four neighbours.
template <class T>
__device__ __forceinline__ void expand_int8(const std::byte* row, int lane, T* values) {
  const char4 codes = reinterpret_cast<const char4*>(row)[lane];
  const float scale = scale_at(row + kCodedRow, lane / 16);
  const float four[4] = {static_cast<float>(codes.x) * scale, static_cast<float>(codes.y) * scale,
                         static_cast<float>(codes.z) * scale, static_cast<float>(codes.w) * scale};
  Pack<T, 4> pack;
  narrow(four, pack);
  reinterpret_cast<Pack<T, 4>*>(values)[lane] = pack;
}

// A lane has two neighbours in each half of the row.
template <class T>
__device__ __forceinline__ void expand_int4(const std::byte* row, int lane, T* values) {
  const unsigned codes = reinterpret_cast<const unsigned short*>(row)[lane];
  const auto code = [codes](int at) { return static_cast<float>(static_cast<int>(((codes >> at) & 15u) ^ 8u) - 8); };
  const float low = scale_at(row + kCodedRow / 2, lane / 16), high = scale_at(row + kCodedRow / 2, 2 + lane / 16);
  const float first[2] = {code(0) * low, code(8) * low}, second[2] = {code(4) * high, code(12) * high};
  Pack<T, 2> packs[2];
  narrow(first, packs[0]);
  narrow(second, packs[1]);
  auto* const to = reinterpret_cast<Pack<T, 2>*>(values);
  to[lane] = packs[0];
  to[kLanes + lane] = packs[1];
}

template <CodedType kType, class T>
__global__ void __launch_bounds__(kLanes* kRowsOfBlock)
    expand_kernel(const std::byte* rows, std::int64_t count, T* values) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kRowsOfBlock;
  const int lane = threadIdx.x % kLanes;
  for (std::int64_t r = static_cast<std::int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.x / kLanes; r < count;
       r += stride) {
    const std::byte* const row = rows + r * static_cast<std::int64_t>(coded_row_bytes(kType));
    if constexpr (kType == CodedType::int8)
      expand_int8(row, lane, values + r * kCodedRow);
    else
      expand_int4(row, lane, values + r * kCodedRow);
  }
}

// A block has rows of codes of one row of the table; -1, which is no token, has those of row 0.
template <CodedType kType, class T>
__global__ void __launch_bounds__(kLanes* kRowsOfBlock)
    embed_codes_kernel(const std::int32_t* ids, const std::byte* table, std::int64_t rows_each, T* y) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.y) * kRowsOfBlock + threadIdx.x / kLanes;
  if (at >= rows_each) return;
  const int lane = threadIdx.x % kLanes;
  const std::byte* const row =
      table + (max(ids[blockIdx.x], 0) * rows_each + at) * static_cast<std::int64_t>(coded_row_bytes(kType));
  T* const to = y + (static_cast<std::int64_t>(blockIdx.x) * rows_each + at) * kCodedRow;
  if constexpr (kType == CodedType::int8)
    expand_int8(row, lane, to);
  else
    expand_int4(row, lane, to);
}

}  // namespace

void embed_codes(CudaStream& stream, ConstView ids, CodedType type, const std::byte* table, View y) {
  const std::int64_t rows_each = y.shape[-1] / kCodedRow;
  if (ids.elements() == 0 || rows_each == 0) return;
  const dim3 blocks(static_cast<unsigned>(ids.elements()), static_cast<unsigned>(pieces(rows_each, kRowsOfBlock)));
  cuda::with_float_type(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto kernel =
        type == CodedType::int8 ? embed_codes_kernel<CodedType::int8, T> : embed_codes_kernel<CodedType::int4, T>;
    kernel<<<blocks, kLanes * kRowsOfBlock, 0, stream.handle()>>>(ids.as<std::int32_t>(), table, rows_each, y.as<T>());
    check_launch();
  });
}

void expand_weights(CudaStream& stream, CodedType type, const std::byte* rows, View values) {
  const std::int64_t count = values.elements() / kCodedRow;
  if (count == 0) return;
  constexpr std::int64_t kMostBlocks = 1 << 16;
  const auto blocks = static_cast<unsigned>(std::min((count + kRowsOfBlock - 1) / kRowsOfBlock, kMostBlocks));
  cuda::with_float_type(values.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (type == CodedType::int8)
      expand_kernel<CodedType::int8>
          <<<blocks, kLanes * kRowsOfBlock, 0, stream.handle()>>>(rows, count, values.as<T>());
    else
      expand_kernel<CodedType::int4>
          <<<blocks, kLanes * kRowsOfBlock, 0, stream.handle()>>>(rows, count, values.as<T>());
    check_launch();
  });
}

}  // namespace zeepo
