#include "zeepo/kernels/check_matmul.h"

#include "zeepo/base/error.h"

namespace zeepo {

MatmulSizes matmul_sizes(ConstView a, ConstView b, ConstView c, const MatmulOptions& options) {
  const bool ta = options.a == Transpose::yes, tb = options.b == Transpose::yes;
  const std::int64_t m = ta ? a.shape[-1] : a.shape.rows(), k = ta ? a.shape.rows() : a.shape[-1];
  const std::int64_t n = tb ? b.shape.rows() : b.shape[-1], b_k = tb ? b.shape[-1] : b.shape.rows();
  const bool bias_fits = !options.bias || (options.bias.elements() == n && options.write == Write::overwrite);
  if (k < 1 || k != b_k || c.shape[-1] != n || c.shape.rows() != m || !bias_fits)
    throw Error("matmul: a {}{} times b {}{} does not give c {} (bias {}{})", a.shape.str(), ta ? "ᵀ" : "",
                b.shape.str(), tb ? "ᵀ" : "", c.shape.str(), options.bias ? options.bias.shape.str() : "none",
                options.write == Write::add ? ", added" : "");
  return {m, n, k};
}

void check_activate_backward(ConstView a, ConstView before, ConstView c, const MatmulOptions& options) {
  if (before.dtype != a.dtype || c.dtype != a.dtype || before.elements() != c.elements())
    throw Error("matmul: the slope at {} {} times a product of {} gives {} {}: must be of one type and size",
                name_of(before.dtype), before.shape.str(), name_of(a.dtype), name_of(c.dtype), c.shape.str());
  if (options.a == Transpose::yes || options.write == Write::add || options.bias || options.a_stride ||
      options.c_stride || options.part.whole)
    throw Error(
        "matmul: {} times the slope of an activation: a must be whole and stored (m, k), c written over, no bias",
        a.shape.str());
}

}  // namespace zeepo
