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

}  // namespace zeepo
