// Kernels on heads inside wider rows: what is beside the heads must stay as it is.
#include "tests/kernels/cuda/cuda_checks.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/kernels/norm.h"
#include "zeepo/kernels/rotary.h"

namespace zeepo {
namespace {

struct HeadSize {
  std::int64_t heads, head_dim;
};
constexpr HeadSize kHeads[] = {{1, 2}, {3, 6}, {4, 64}, {2, 128}, {3, 256}, {5, 30}};

TEST(CudaHeads, RotateHasTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const auto [heads, d] : kHeads)
      for (const Turn turn : {Turn::forward, Turn::backward}) {
        const std::int64_t width = (heads + 2) * d;
        auto x = Twin::random(dtype, {2, 9, width}, 1);
        auto cosines = Twin::random(DType::f32, {20, d / 2}, 2), sines = Twin::random(DType::f32, {20, d / 2}, 3);
        on_both([&, h = heads, n = d](auto& s) {
          rotate(s, heads_of(x.on(s), n, h, n), cosines.on(s), sines.on(s), 4, turn);
        });
        x.expect_same_bits("rotate " + name_of_case(dtype, heads, d));
      }
}

TEST(CudaHeads, CopyMovesTheHeadsAlone) {
  for (const DType dtype : kFloatTypes)
    for (const auto [heads, d] : kHeads) {
      auto from = Twin::random(dtype, {2, 9, (heads + 1) * d}, 1), to = Twin::random(dtype, {2, 9, (heads + 3) * d}, 2);
      on_both([&, h = heads, n = d](auto& s) {
        copy_heads(s, heads_of(from.on(s), n, h, n), heads_of(to.on(s), 2 * n, h, n));
      });
      to.expect_same_bits("copy_heads " + name_of_case(dtype, heads, d));
    }
}

TEST(CudaHeads, RmsNormOfHeadsAndItsGradientAreNearTheCpus) {
  for (const SummedTypes types : kSummedTypes)
    for (const auto [heads, d] : kHeads)
      for (const Write write : {Write::overwrite, Write::add}) {
        const DType dtype = types.values;
        const auto what = name_of_case(dtype, heads, d, write == Write::add);
        const Shape shape{2, 67, (heads + 1) * d};
        auto x = Twin::random(dtype, shape, 1), y = Twin::random(dtype, shape, 2), dy = Twin::random(dtype, shape, 3);
        auto dx = Twin::random(dtype, shape, 4), weight = Twin::random(dtype, {d}, 5);
        auto dweight = Twin::random(types.sums, {d}, 6);
        Twin rstd(DType::f32, {2 * 67, heads});
        on_both([&, h = heads, n = d](auto& s) {
          const auto part = [&](Twin& t) { return heads_of(t.on(s), n, h, n); };
          rms_norm_heads(s, part(x), weight.on(s), 1e-6f, part(y), rstd.on(s));
          rms_norm_heads_backward(s, part(dy), part(x), weight.on(s), rstd.on(s), part(dx), dweight.on(s), write);
        });
        rstd.expect_near(1e-6, 0, "rstd " + what);
        y.expect_near(2e-6, 0, "y " + what);
        dx.expect_near(5e-6, d == 2 ? 100 : 5, "dx " + what);
        dweight.expect_near(5e-6, 40, "dweight " + what);
      }
}

}  // namespace
}  // namespace zeepo
