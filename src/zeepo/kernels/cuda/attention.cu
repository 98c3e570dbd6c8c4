#include "zeepo/kernels/attention.h"

#include "zeepo/kernels/check_attention.h"
#include "zeepo/kernels/cuda/attention_cudnn.h"
#include "zeepo/kernels/cuda/attention_paths.h"
#include "zeepo/kernels/cuda/attention_plain.h"
#include "zeepo/kernels/cuda/attention_samples.h"
#include "zeepo/kernels/cuda/shared_memory.h"
#include "zeepo/kernels/cuda/sm90/attention.h"

namespace zeepo {
namespace cuda {
namespace {

AttentionGradients gradients_of(const AttentionBackward& x, const AttentionExtents& extents, float* delta) {
  return {extents,
          pointer_of(x.q),
          pointer_of(x.k),
          pointer_of(x.v),
          pointer_of(x.out),
          pointer_of(x.dout),
          pointer_of(x.dq),
          pointer_of(x.dk),
          pointer_of(x.dv),
          x.log_sums.as<float>(),
          delta};
}

template <class... Heads>
bool matrix_units_take(CudaStream& stream, const Heads&... heads) {
  return sm90::takes(stream.device()) && (sm90::takes(heads) && ...);
}

}  // namespace

bool attention_by(AttentionPath path, CudaStream& stream, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                  const Heads& out, View log_sums, const AttentionOptions& options) {
  switch (path) {
    case AttentionPath::cudnn: return attention_cudnn(stream, q, k, v, out, log_sums, options);
    case AttentionPath::matrix:
      if (!matrix_units_take(stream, q, k, v, ConstHeads(out))) return false;
      sm90::forward(stream.handle(), q, k, v, out, log_sums, options);
      return true;
    case AttentionPath::plain: break;
  }
  attention_plain(stream.handle(), q.dtype,
                  {AttentionExtents(q, k, options), pointer_of(q), pointer_of(k), pointer_of(v), pointer_of(out),
                   log_sums.as<float>()});
  return true;
}

bool attention_backward_by(AttentionPath path, CudaStream& stream, const AttentionBackward& x,
                           const AttentionOptions& options, const BackwardRoom& room) {
  std::byte* workspace = stream.workspace(room.workspace_bytes);
  switch (path) {
    case AttentionPath::cudnn: return false;
    case AttentionPath::matrix:
      if (!matrix_units_take(stream, x.q, x.k, x.v, x.out, x.dout, ConstHeads(x.dq), ConstHeads(x.dk),
                             ConstHeads(x.dv)))
        return false;
      sm90::backward(stream.handle(), x, options, workspace, room.workspace_bytes);
      return true;
    case AttentionPath::plain: break;
  }
  const std::size_t sample_bytes = static_cast<std::size_t>(x.q.heads * x.q.rows) * sizeof(float);
  const int shared_bytes = std::min(room.shared_bytes, most_shared_bytes(stream.device()));
  for_parts_of_batch(x, sample_bytes, room.workspace_bytes, [&](const AttentionBackward& part, std::int64_t first) {
    const auto gradients = gradients_of(part, {part.q, part.k, options, first}, reinterpret_cast<float*>(workspace));
    attention_delta(stream.handle(), part.q.dtype, gradients);
    attention_plain_backward(stream.handle(), part.q.dtype, gradients, shared_bytes);
  });
  return true;
}

namespace {

// As measured on an H200 (bench/RESULTS.md): cuDNN's forward pass is ahead of ours for heads of more than 64 and up to
// 128; without Hopper's units it is far ahead.
bool prefers_cudnn(CudaStream& stream, const ConstHeads& q) {
  return (q.head_dim > 64 && q.head_dim <= 128) || !sm90::takes(stream.device());
}

}  // namespace
}  // namespace cuda

void attention(CudaStream& stream, ConstHeads q, ConstHeads k, ConstHeads v, Heads out, View log_sums,
               const AttentionOptions& options) {
  check_attention(q, k, v, out, log_sums, options);
  check_attention_limits(q, k, cuda::kMaxHeadDim);
  const auto by = [&](cuda::AttentionPath path) {
    return cuda::attention_by(path, stream, q, k, v, out, log_sums, options);
  };
  // Ours go over blocks of keys at multiples of their size, in order, for one query as for many: the same bits. cuDNN
  // takes training's lengths alone.
  if (!stream.batch_invariant() && cuda::prefers_cudnn(stream, q) && by(cuda::AttentionPath::cudnn)) return;
  if (!by(cuda::AttentionPath::matrix)) by(cuda::AttentionPath::plain);
}

void attention_backward(CudaStream& stream, const AttentionBackward& x, const AttentionOptions& options) {
  check_attention_backward(x, options);
  check_attention_limits(x.q, x.k, cuda::kMaxHeadDim);
  if (!cuda::attention_backward_by(cuda::AttentionPath::matrix, stream, x, options))
    cuda::attention_backward_by(cuda::AttentionPath::plain, stream, x, options);
}

}  // namespace zeepo
