#include "zeepo/kernels/attention.h"
#include "zeepo/kernels/conv.h"
#include "zeepo/kernels/dry/dry_kernels.h"
#include "zeepo/kernels/fp8.h"
#include "zeepo/kernels/matmul.h"

namespace zeepo {
namespace {

using namespace dry;

void product(DryStream& s, ConstView a, ConstView b, const View& c, double rate) {
  // c is (m, n); what a has more than m is k.
  const auto m = static_cast<double>(c.shape.rows()), n = static_cast<double>(c.shape[-1]);
  const double k = static_cast<double>(a.elements()) / std::max(1.0, m);
  computes(s, 2 * m * n * k, rate, bytes_of(a) + bytes_of(b) + bytes_of(c));
}

// Of the products q kᵀ and the like: what causal masks and windows leave.
double attended(const ConstHeads& q, const ConstHeads& k, const AttentionOptions& options) {
  const auto queries = static_cast<double>(q.rows), keys = static_cast<double>(k.rows);
  double pairs = queries * keys - queries * (queries - 1) / 2;
  if (options.window > 0) pairs = std::min(pairs, queries * static_cast<double>(options.window));
  return 2 * pairs * static_cast<double>(q.batch) * static_cast<double>(q.heads * q.head_dim);
}

double filter_operations(const ConstView& y, const ConstView& weight) {
  return 2 * static_cast<double>(y.elements()) * static_cast<double>(weight.elements()) /
         static_cast<double>(weight.shape[0]);
}

}  // namespace

void matmul(DryStream& s, ConstView a, ConstView b, View c, const MatmulOptions&) {
  product(s, a, b, c, s.time()->rates().products(a.dtype));
}

void matmul_activate_backward(DryStream& s, ConstView a, ConstView b, Activation, ConstView, View c,
                              const MatmulOptions&) {
  product(s, a, b, c, s.time()->rates().products(a.dtype));
}

void matmul_fp8(DryStream& s, Fp8Matrix a, Fp8Matrix b, View c, const Fp8MatmulOptions&) {
  const double m = static_cast<double>(c.shape.rows()), n = static_cast<double>(c.shape[-1]);
  const double k = 2 * static_cast<double>(a.pairs.shape[-1]);
  computes(s, 2 * m * n * k, s.time()->rates().products_fp8, bytes_of(a.pairs) + bytes_of(b.pairs) + bytes_of(c));
}

void quantise(DryStream& s, ConstView x, Transpose, Fp8Matrix q) { moves(s, x, x, q.pairs); }

void sum_rows(DryStream& s, ConstView x, View sums, Write) { moves(s, x, sums); }

void attention(DryStream& s, ConstHeads q, ConstHeads k, ConstHeads v, Heads out, View,
               const AttentionOptions& options) {
  computes(s, 2 * attended(q, k, options), s.time()->rates().attention,
           bytes_of(q) + bytes_of(k) + bytes_of(v) + bytes_of(out));
}

void attention_backward(DryStream& s, const AttentionBackward& x, const AttentionOptions& options) {
  // q kᵀ again, dv, dp, dq and dk.
  computes(s, 5 * attended(x.q, x.k, options), s.time()->rates().attention,
           2 * (bytes_of(x.q) + bytes_of(x.k) + bytes_of(x.v)) + 2 * bytes_of(x.out));
}

void conv2d(DryStream& s, ConstView x, ConstView weight, ConstView, View y, View, const ConvOptions&) {
  computes(s, filter_operations(y, weight), s.time()->rates().products(x.dtype), bytes_of(x) + bytes_of(y));
}

void conv2d_backward(DryStream& s, const Conv2dBackward& x, const ConvOptions&) {
  computes(s, 2 * filter_operations(x.dy, x.weight), s.time()->rates().products(x.x.dtype),
           2 * (bytes_of(x.x) + bytes_of(x.dy)));
}

void max_pool2d(DryStream& s, ConstView x, View y, View, std::int64_t) { moves(s, x, y); }
void max_pool2d_backward(DryStream& s, ConstView dy, ConstView indices, View dx) { moves(s, dy, indices, dx); }

}  // namespace zeepo
