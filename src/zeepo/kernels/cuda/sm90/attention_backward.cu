#include "zeepo/kernels/cuda/sm90/attention_backward.h"

#include "zeepo/device/cuda/check.h"
#include "zeepo/kernels/cuda/attention_samples.h"
#include "zeepo/kernels/cuda/floats.h"

namespace zeepo::cuda::sm90 {
namespace {

constexpr float kLog2e = 1.4426950408889634f;
// Blocks of 128 keys that keep a GPU busy to the end, although the last keys have the least to do.
constexpr std::int64_t kEnoughBlocks = 512;

struct RowTerms {
  AttentionExtents x;
  HeadsPointer out, dout;
  const float* log_sums;
  float2* terms;
};

constexpr int kThreads = 256;

// A row a group of eight threads, eight elements at a time; the rows of all heads, one after another.
template <class T>
__global__ void __launch_bounds__(kThreads) row_terms_kernel(const __grid_constant__ RowTerms a) {
  const AttentionExtents& x = a.x;
  constexpr int kRows = kThreads / 8;
  const int length = (x.queries + 63) / 64 * 64, blocks = length / kRows;  // of one head
  const int head = blockIdx.x / blocks, b = head / x.heads, h = head % x.heads;
  const int lane = threadIdx.x % 8, i = blockIdx.x % blocks * kRows + threadIdx.x / 8;
  float sum = 0;
  if (i < x.queries) {
    const T* out = head_of<T>(a.out, b, h, x.dim) + i * a.out.row_stride;
    const T* dout = head_of<T>(a.dout, b, h, x.dim) + i * a.dout.row_stride;
    for (int d = 8 * lane; d < x.dim; d += 64) {
      float y[8], dy[8];
      load<8>(out + d, y);
      load<8>(dout + d, dy);
#pragma unroll
      for (int n = 0; n < 8; ++n) sum = __fmaf_rn(y[n], dy[n], sum);
    }
  }
#pragma unroll
  for (int step = 4; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
  if (lane != 0) return;
  const float log_sum = i < x.queries ? a.log_sums[std::int64_t{head} * x.queries + i] : 0;
  a.terms[std::int64_t{head} * length + i] = {-log_sum * kLog2e, sum};
}

struct Parts {
  AttentionExtents x;
  HeadsPointer dk, dv;
  int parts;
  const float* partials;
};

// The sum of the parts of dk (blockIdx.y == 0) or dv, four elements a thread.
template <class T>
__global__ void add_parts_kernel(const __grid_constant__ Parts a) {
  const AttentionExtents& x = a.x;
  const std::int64_t elements = std::int64_t{x.batch} * x.keys * x.kv_heads * x.dim;
  const std::int64_t at = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * 4;
  if (at >= elements) return;
  const float* from = a.partials + blockIdx.y * a.parts * elements + at;
  float sum[4] = {};
  for (int p = 0; p < a.parts; ++p) {
    float part[4];
    load<4>(from + p * elements, part);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] += part[i];
  }
  const HeadsPointer& to = blockIdx.y == 0 ? a.dk : a.dv;
  const std::int64_t width = std::int64_t{x.kv_heads} * x.dim, row = at / width;
  store<4>(sum, static_cast<T*>(to.data) + row / x.keys * to.batch_stride + row % x.keys * to.row_stride + at % width);
}

std::size_t row_terms_bytes(const AttentionBackward& x, std::int64_t batch) {
  return static_cast<std::size_t>(batch * x.q.heads * row_terms_length(x.q.rows)) * sizeof(float2);
}
std::size_t partials_bytes(const AttentionBackward& x, std::int64_t parts) {
  if (parts == 1) return 0;
  return static_cast<std::size_t>(8 * parts * x.k.batch * x.k.rows * x.k.heads * x.k.head_dim);
}
// The fewest parts of a group of heads that make enough blocks, of those whose sums fit with the whole batch's terms.
int parts_within(const AttentionBackward& x, std::size_t room_bytes) {
  const std::int64_t blocks = x.k.batch * x.k.heads * pieces(x.k.rows, 128), group = x.q.heads / x.k.heads;
  std::int64_t best = 1;
  for (std::int64_t parts = 2; parts <= group && blocks * best < kEnoughBlocks; ++parts)
    if (group % parts == 0 && row_terms_bytes(x, x.q.batch) + partials_bytes(x, parts) <= room_bytes) best = parts;
  return static_cast<int>(best);
}

// The workspace has the row terms and then, where groups are cut into parts, the parts' sums.
void samples_backward(cudaStream_t stream, const AttentionBackward& x, const AttentionExtents& extents, int parts,
                      std::byte* workspace) {
  auto* terms = reinterpret_cast<float2*>(workspace);
  auto* partials = reinterpret_cast<float*>(workspace + row_terms_bytes(x, x.q.batch));
  with_float_type(x.q.dtype, [&](auto type) {
    const std::int64_t rows = x.q.batch * x.q.heads * row_terms_length(x.q.rows);
    row_terms_kernel<decltype(type)><<<static_cast<unsigned>(pieces(rows, kThreads / 8)), kThreads, 0, stream>>>(
        {extents, pointer_of(x.out), pointer_of(x.dout), x.log_sums.as<float>(), terms});
    check_launch();
  });
  query_gradients(stream, x, extents, terms);
  key_gradients(stream, x, extents, terms, parts, partials);
  if (parts == 1) return;
  with_float_type(x.q.dtype, [&](auto type) {
    const std::int64_t elements = x.k.batch * x.k.rows * x.k.heads * x.k.head_dim;
    const dim3 grid(static_cast<unsigned>(pieces(elements, 4 * kThreads)), 2);
    add_parts_kernel<decltype(type)>
        <<<grid, kThreads, 0, stream>>>({extents, pointer_of(x.dk), pointer_of(x.dv), parts, partials});
    check_launch();
  });
}

}  // namespace

bool takes(int device) {
  int major = 0;
  cuda_check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  return major == 9;
}

// Groups are cut into parts only where the whole batch fits: in a batch that is cut, a sample's sums stay as they are.
void backward(cudaStream_t stream, const AttentionBackward& x, const AttentionOptions& options, std::byte* workspace,
              std::size_t workspace_bytes) {
  const int parts = parts_within(x, workspace_bytes);
  for_parts_of_batch(x, row_terms_bytes(x, 1), workspace_bytes, [&](const AttentionBackward& part, std::int64_t first) {
    samples_backward(stream, part, {part.q, part.k, options, first}, parts, workspace);
  });
}

}  // namespace zeepo::cuda::sm90
