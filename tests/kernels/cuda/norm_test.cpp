#include "zeepo/kernels/norm.h"

#include "tests/kernels/cuda/cuda_checks.h"
#include "tests/support/errors.h"

namespace zeepo {
namespace {

constexpr float kEps = 1e-5f;
struct Size {
  std::int64_t rows, n;
};
constexpr Size kSizes[] = {{1, 1}, {7, 5}, {3, 64}, {130, 768}, {33, 1023}, {1030, 264}, {5, 8192}, {2, 16384}};
constexpr Write kWrites[] = {Write::overwrite, Write::add};

TEST(CudaNorm, LayerNormIsNearTheCpus) {
  for (const DType dtype : kFloatTypes)
    for (const auto [rows, n] : kSizes)
      for (const bool with_delta : {false, true}) {
        const auto what = name_of_case(dtype, rows, n, with_delta);
        const Shape shape{rows, n}, row{n};
        auto x = Twin::random(dtype, shape, 1, 2), delta = Twin::random(dtype, shape, 2);
        auto weight = Twin::random(dtype, row, 3), bias = Twin::random(dtype, row, 4);
        Twin sum(dtype, shape), y(dtype, shape), mean(DType::f32, {rows}), rstd(DType::f32, {rows});
        on_both([&](auto& s) {
          layer_norm(s, {.x = x.on(s),
                         .delta = with_delta ? delta.on(s) : View{},
                         .weight = weight.on(s),
                         .bias = with_delta ? View{} : bias.on(s),
                         .eps = kEps,
                         .sum = with_delta ? sum.on(s) : View{},
                         .y = y.on(s),
                         .mean = mean.on(s),
                         .rstd = rstd.on(s)});
        });
        if (with_delta) sum.expect_same_bits("sum " + what);
        mean.expect_near(1e-6, 1, "mean " + what);
        rstd.expect_near(n == 1 ? 1e-4 : 1e-6, 1, "rstd " + what);
        y.expect_near(5e-6, 2, "y " + what);
      }
}

TEST(CudaNorm, LayerNormBackwardIsNearTheCpus) {
  for (const SummedTypes types : kSummedTypes)
    for (const auto [rows, n] : kSizes)
      for (const Write write : kWrites) {
        if (n == 1) continue;  // the gradient is a rounding error
        const DType dtype = types.values;
        const auto what = name_of_case(dtype, rows, n, write == Write::add);
        const Shape shape{rows, n}, row{n};
        auto x = Twin::random(dtype, shape, 1, 2), dy = Twin::random(dtype, shape, 2),
             dx = Twin::random(dtype, shape, 5);
        auto weight = Twin::random(dtype, row, 3);
        auto dweight = Twin::random(types.sums, row, 6), dbias = Twin::random(types.sums, row, 7);
        Twin y(dtype, shape), mean(DType::f32, {rows}), rstd(DType::f32, {rows});
        on_both([&](auto& s) {
          layer_norm(s, {.x = x.on(s),
                         .delta = {},
                         .weight = weight.on(s),
                         .bias = {},
                         .eps = kEps,
                         .sum = {},
                         .y = y.on(s),
                         .mean = mean.on(s),
                         .rstd = rstd.on(s)});
          layer_norm_backward(s, {.dy = dy.on(s),
                                  .x = x.on(s),
                                  .weight = weight.on(s),
                                  .mean = mean.on(s),
                                  .rstd = rstd.on(s),
                                  .dx = dx.on(s),
                                  .dweight = dweight.on(s),
                                  .dbias = dbias.on(s),
                                  .write_dx = write,
                                  .write_dweight = write,
                                  .write_dbias = write});
        });
        const double size = std::sqrt(static_cast<double>(rows));
        dx.expect_near(5e-6, 3, "dx " + what);
        dweight.expect_near(5e-6, 3 * size, "dweight " + what);
        dbias.expect_near(5e-6, 3 * size, "dbias " + what);
      }
}

TEST(CudaNorm, RmsNormAndItsGradientAreNearTheCpus) {
  for (const SummedTypes types : kSummedTypes)
    for (const auto [rows, n] : kSizes)
      for (const Write write : kWrites)
        for (const std::int64_t shift : {0, 1}) {
          const DType dtype = types.values;
          if (shift > 0 && n > 8192) continue;  // too long where it is not aligned
          const auto what = name_of_case(dtype, rows, n, shift);
          const Shape shape{rows, n}, row{n};
          const bool with_delta = write == Write::add;
          auto x = Twin::random(dtype, shape, 1, 2, shift), delta = Twin::random(dtype, shape, 2);
          auto dy = Twin::random(dtype, shape, 3), dx = Twin::random(dtype, shape, 5);
          auto weight = Twin::random(dtype, row, 4), dweight = Twin::random(types.sums, row, 6);
          Twin sum(dtype, shape), y(dtype, shape), rstd(DType::f32, {rows});
          on_both([&](auto& s) {
            rms_norm(s, {.x = x.on(s),
                         .delta = with_delta ? delta.on(s) : View{},
                         .weight = weight.on(s),
                         .eps = kEps,
                         .sum = with_delta ? sum.on(s) : View{},
                         .y = y.on(s),
                         .rstd = rstd.on(s)});
            rms_norm_backward(s, {.dy = dy.on(s),
                                  .x = with_delta ? sum.on(s) : x.on(s),
                                  .weight = weight.on(s),
                                  .rstd = rstd.on(s),
                                  .dx = dx.on(s),
                                  .dweight = dweight.on(s),
                                  .write_dx = write,
                                  .write_dweight = write});
          });
          if (with_delta) sum.expect_same_bits("sum " + what);
          rstd.expect_near(1e-6, 0, "rstd " + what);
          y.expect_near(2e-6, 0, "y " + what);
          dx.expect_near(5e-6, n == 1 ? 30 : 3, "dx " + what);
          dweight.expect_near(5e-6, 3 * std::sqrt(static_cast<double>(rows)), "dweight " + what);
        }
}

TEST(CudaNorm, RefusesRowsThatDoNotFitRegisters) {
  auto x = Twin::random(DType::bf16, {1, 16392}, 1), weight = Twin::random(DType::bf16, {16392}, 2);
  Twin y(DType::bf16, {1, 16392});
  const auto text = error_text([&] {
    rms_norm(gpu(), {.x = x.on(gpu()),
                     .delta = {},
                     .weight = weight.on(gpu()),
                     .eps = kEps,
                     .sum = {},
                     .y = y.on(gpu()),
                     .rstd = {}});
  });
  EXPECT_TRUE(names(text, "rms_norm", "16392", "16384"));
}

TEST(CudaNorm, GivesTheSameBitsEveryTime) {
  const Shape shape{1000, 1536}, row{1536};
  auto x = Twin::random(DType::bf16, shape, 1), dy = Twin::random(DType::bf16, shape, 2);
  auto weight = Twin::random(DType::bf16, row, 3), rstd = Twin::random(DType::f32, {1000}, 4);
  std::vector<std::byte> first;
  for (int turn = 0; turn < 5; ++turn) {
    Twin dx(DType::bf16, shape), dweight(DType::bf16, row);
    rms_norm_backward(gpu(), {.dy = dy.on(gpu()),
                              .x = x.on(gpu()),
                              .weight = weight.on(gpu()),
                              .rstd = rstd.on(gpu()),
                              .dx = dx.on(gpu()),
                              .dweight = dweight.on(gpu()),
                              .write_dx = Write::overwrite,
                              .write_dweight = Write::overwrite});
    if (turn == 0) first = dweight.back().bytes();
    EXPECT_TRUE(dweight.back().bytes() == first);
  }
}

}  // namespace
}  // namespace zeepo
