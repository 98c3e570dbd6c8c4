#include "zeepo/kernels/embedding.h"

#include <bit>
#include <cub/device/device_radix_sort.cuh>
#include <limits>

#include "zeepo/kernels/cuda/rows.h"

namespace zeepo {
namespace {

using namespace cuda;

template <int N, class T>
__global__ void __launch_bounds__(256) embed_kernel(const std::int32_t* ids, const T* table, std::int64_t n, T* y) {
  const T* in = table + max(ids[blockIdx.x], 0) * n;  // -1 is no token: whoever reads it knows (most_likely.h)
  T* out = y + blockIdx.x * n;
  for (std::int64_t i = threadIdx.x * N; i < n; i += blockDim.x * N)
    *reinterpret_cast<Pack<T, N>*>(out + i) = *reinterpret_cast<const Pack<T, N>*>(in + i);
}

__global__ void __launch_bounds__(256) count_up_kernel(std::int32_t* places, int n) {
  const int i = static_cast<int>(blockIdx.x * 256 + threadIdx.x);
  if (i < n) places[i] = i;
}

// ids are sorted; `places` says where each stood, in order among equals. The block of the first of equal ids adds up
// their rows of dy, some columns of them.
constexpr int kThreads = 64;
template <int N, class T, class Sum>
__global__ void __launch_bounds__(kThreads)
    sum_equal_ids_kernel(const std::int32_t* ids, const std::int32_t* places, int count, const T* dy, std::int64_t n,
                         Sum* dtable, bool add) {
  const int first = static_cast<int>(blockIdx.x);
  const std::int32_t id = ids[first];
  if (first > 0 && ids[first - 1] == id) return;
  const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * kThreads + threadIdx.x) * N;
  if (column >= n) return;
  int end = first + 1, past = count;  // ids before `end` are equal, those from `past` on are larger
  while (end < past) {
    const int middle = end + (past - end) / 2;
    if (ids[middle] == id)
      end = middle + 1;
    else
      past = middle;
  }
  Sum* out = dtable + id * n + column;
  float sum[N] = {};
  if (add) load<N>(out, sum);
#pragma unroll 8
  for (int i = first; i < end; ++i) {
    float v[N];
    load<N>(dy + places[i] * n + column, v);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += v[j];
  }
  store<N>(sum, out);
}

// Pieces of the workspace, each aligned.
struct SortRoom {
  std::size_t column_bytes, sort_bytes = 0;
  std::byte* memory = nullptr;

  explicit SortRoom(std::size_t count) : column_bytes(pieces(static_cast<std::int64_t>(count * 4), 256) * 256) {}
  std::int32_t* column(std::size_t i) const { return reinterpret_cast<std::int32_t*>(memory + i * column_bytes); }
  void* sort_memory() const { return memory + 3 * column_bytes; }
  std::size_t bytes() const { return 3 * column_bytes + sort_bytes; }
};

int id_count(const char* op, ConstView ids) {
  if (ids.elements() > std::numeric_limits<int>::max())
    throw Error("{}: {} ids at once; the kernel counts to {}", op, ids.elements(), std::numeric_limits<int>::max());
  return static_cast<int>(ids.elements());
}

}  // namespace

void embed(CudaStream& stream, ConstView ids, ConstView table, View y) {
  const std::int64_t n = table.shape[-1];
  with_float_type(table.dtype, [&](auto zero) {
    using T = decltype(zero);
    with_pack(all_packable(table.data, y.data, n), [&](auto pack) {
      launch_rows(stream, "embed", embed_kernel<pack(), T>, id_count("embed", ids), threads_for(n / pack, 256), 0,
                  ids.as<std::int32_t>(), table.as<T>(), n, y.as<T>());
    });
  });
}

// The ids are sorted, so that equal ones are found together and each row of the table has one writer.
void embed_backward(CudaStream& stream, ConstView ids, ConstView dy, View dtable, Write write) {
  const std::int64_t n = dtable.shape[-1], vocabulary = dtable.shape[0];
  const int count = id_count("embed_backward", ids);
  if (write == Write::overwrite) cuda_check(cudaMemsetAsync(dtable.data, 0, dtable.bytes(), stream.handle()));
  if (count == 0 || n == 0) return;
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(vocabulary - 1))));
  SortRoom room(static_cast<std::size_t>(count));
  cuda_check(cub::DeviceRadixSort::SortPairs(nullptr, room.sort_bytes, ids.as<std::int32_t>(), room.column(0),
                                             room.column(1), room.column(2), count, 0, bits, stream.handle()));
  room.memory = stream.workspace(room.bytes());
  std::int32_t *places = room.column(0), *sorted_ids = room.column(1), *sorted_places = room.column(2);
  count_up_kernel<<<static_cast<unsigned>(pieces(count, 256)), 256, 0, stream.handle()>>>(places, count);
  check_launch();
  cuda_check(cub::DeviceRadixSort::SortPairs(room.sort_memory(), room.sort_bytes, ids.as<std::int32_t>(), sorted_ids,
                                             places, sorted_places, count, 0, bits, stream.handle()));
  with_float_and_sum_types(dy.dtype, dtable.dtype, [&](auto zero, auto zero_sum) {
    using T = decltype(zero);
    using Sum = decltype(zero_sum);
    with_pack(all_packable(dy.data, dtable.data, n), [&](auto pack) {
      const dim3 grid(static_cast<unsigned>(count), static_cast<unsigned>(pieces(n, kThreads * pack)));
      sum_equal_ids_kernel<pack(), T, Sum><<<grid, kThreads, 0, stream.handle()>>>(
          sorted_ids, sorted_places, count, dy.as<T>(), n, dtable.as<Sum>(), write == Write::add);
    });
  });
  check_launch();
}

}  // namespace zeepo
