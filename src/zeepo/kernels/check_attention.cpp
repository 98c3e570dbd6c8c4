#include "zeepo/kernels/check_attention.h"

#include <limits>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

void check_operands(const char* op, const ConstHeads& q, const ConstHeads& k, const ConstHeads& v,
                    const ConstHeads& out, const AttentionOptions& options) {
  const auto text = [](const ConstHeads& x) {
    return fmt::format("{} ({}, {}, {}, {})", name_of(x.dtype), x.batch, x.rows, x.heads, x.head_dim);
  };
  const auto like = [](const ConstHeads& x, const ConstHeads& y) {
    return x.dtype == y.dtype && x.batch == y.batch && x.rows == y.rows && x.heads == y.heads &&
           x.head_dim == y.head_dim;
  };
  const bool fits = like(k, v) && like(q, out) && q.dtype == k.dtype && q.batch == k.batch &&
                    q.head_dim == k.head_dim && q.rows <= k.rows && k.heads > 0 && q.heads % k.heads == 0;
  if (!fits || !is_float(q.dtype))
    throw Error("{}: q {}, k {}, v {} and out {} do not fit together", op, text(q), text(k), text(v), text(out));
  if (!(options.scale > 0) || !(options.dropout >= 0) || !(options.dropout < 1) || options.window < 0)
    throw Error("{}: scale {}, dropout {}, window {}: must be positive, in [0, 1) and at least 0", op, options.scale,
                options.dropout, options.window);
}

}  // namespace

void check_attention(const ConstHeads& q, const ConstHeads& k, const ConstHeads& v, const ConstHeads& out,
                     const View& log_sums, const AttentionOptions& options) {
  check_operands("attention", q, k, v, out, options);
  if (log_sums && (log_sums.dtype != DType::f32 || log_sums.elements() != q.batch * q.heads * q.rows))
    throw Error("attention: log_sums {} {}: must be fp32 ({}, {}, {})", name_of(log_sums.dtype), log_sums.shape.str(),
                q.batch, q.heads, q.rows);
}

void check_attention_backward(const AttentionBackward& x, const AttentionOptions& options) {
  check_operands("attention_backward", x.q, x.k, x.v, x.out, options);
  check_operands("attention_backward", x.dq, x.dk, x.dv, x.dout, options);
  if (x.q.rows != x.k.rows || x.dq.rows != x.q.rows || x.dq.heads != x.q.heads || x.dk.heads != x.k.heads ||
      x.dq.dtype != x.q.dtype || x.dq.batch != x.q.batch || x.dq.head_dim != x.q.head_dim || x.dk.rows != x.k.rows)
    throw Error(
        "attention_backward: {} queries and {} keys: gradients must have the extents of q, k and v, with as many "
        "queries as keys",
        x.q.rows, x.k.rows);
  if (x.log_sums.dtype != DType::f32 || x.log_sums.elements() != x.q.batch * x.q.heads * x.q.rows)
    throw Error("attention_backward: log_sums {}: must be ({}, {}, {})", x.log_sums.shape.str(), x.q.batch, x.q.heads,
                x.q.rows);
}

void check_attention_limits(const ConstHeads& q, const ConstHeads& k, std::int64_t max_head_dim) {
  if (q.head_dim > max_head_dim)
    throw Error("attention: heads of {}: at most {} on a GPU; compute on the CPU", q.head_dim, max_head_dim);
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max() / 4;
  if (k.rows > kMax || q.batch * q.heads > kMax)
    throw Error("attention: {} keys of {} x {} heads: at most {} of either on a GPU", k.rows, q.batch, q.heads, kMax);
}

}  // namespace zeepo
