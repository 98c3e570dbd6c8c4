#include "zeepo/kernels/conv.h"

#include <limits>

#include "tests/kernels/kernel_checks.h"

namespace zeepo {
namespace {

struct ConvCase {
  Shape x, weight;
  ConvOptions options;

  std::int64_t out(int axis) const { return (x[axis] + 2 * options.padding - weight[axis]) / options.stride + 1; }
  Shape y() const { return {x[0], weight[0], out(2), out(3)}; }
};
const ConvCase kCases[] = {
    {{1, 1, 5, 5}, {1, 1, 3, 3}, {1, 0}},  {{2, 3, 8, 9}, {4, 3, 3, 3}, {1, 1}}, {{3, 2, 7, 6}, {5, 2, 1, 1}, {1, 0}},
    {{19, 2, 9, 8}, {3, 2, 3, 2}, {2, 1}}, {{2, 1, 4, 4}, {2, 1, 4, 4}, {3, 2}}, {{1, 2, 3, 3}, {1, 2, 3, 3}, {2, 4}},
    {{40, 1, 6, 6}, {2, 1, 5, 5}, {1, 2}},
};

// Calls f(x, weight, y) with the indices of every product of the convolution.
template <class F>
void for_products(const ConvCase& c, const F& f) {
  const Shape y = c.y();
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t o = 0; o < y[1]; ++o)
      for (std::int64_t i = 0; i < y[2]; ++i)
        for (std::int64_t j = 0; j < y[3]; ++j)
          for (std::int64_t k = 0; k < c.weight[1]; ++k)
            for (std::int64_t a = 0; a < c.weight[2]; ++a)
              for (std::int64_t b = 0; b < c.weight[3]; ++b) {
                const auto row = i * c.options.stride + a - c.options.padding;
                const auto column = j * c.options.stride + b - c.options.padding;
                if (row < 0 || row >= c.x[2] || column < 0 || column >= c.x[3]) continue;
                f(((n * c.x[1] + k) * c.x[2] + row) * c.x[3] + column,
                  ((o * c.weight[1] + k) * c.weight[2] + a) * c.weight[3] + b, ((n * y[1] + o) * y[2] + i) * y[3] + j);
              }
}

void expect_near(const TypedValues& got, const std::vector<double>& exact, const std::vector<double>& sizes) {
  for (std::int64_t i = 0; i < got.elements(); ++i) {
    const auto k = static_cast<std::size_t>(i);
    ASSERT_NEAR(got[i], exact[k], allowed_error(got.view().dtype, exact[k], 0) + 1e-6 * sizes[k] + 1e-12) << i;
  }
}

// A sum in doubles beside the sum of its terms' sizes.
struct Sums {
  explicit Sums(std::int64_t n) : value(static_cast<std::size_t>(n)), size(static_cast<std::size_t>(n)) {}
  void add(std::int64_t i, double term) {
    value[static_cast<std::size_t>(i)] += term;
    size[static_cast<std::size_t>(i)] += std::abs(term);
  }
  std::vector<double> value, size;
};

TEST(Conv2d, MatchesDoubles) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const auto& c : kCases)
      for (const bool with_bias : {true, false}) {
        const auto x = TypedValues::random(dtype, c.x, 1), weight = TypedValues::random(dtype, c.weight, 2);
        const auto bias = TypedValues::random(dtype, {c.weight[0]}, 3);
        auto y = TypedValues::random(dtype, c.y(), 4);
        TypedValues scratch(DType::f32, {conv2d_scratch_elements(c.x, c.weight, c.options)});
        conv2d(threads.stream, x.view(), weight.view(), with_bias ? bias.view() : ConstView{}, y.view(), scratch.view(),
               c.options);
        Sums exact(y.elements());
        for_products(c, [&](auto i, auto w, auto out) { exact.add(out, x[i] * weight[w]); });
        const auto places = c.out(2) * c.out(3);
        for (std::int64_t i = 0; i < y.elements() && with_bias; ++i) exact.add(i, bias[i / places % c.weight[0]]);
        expect_near(y, exact.value, exact.size);
      }
}

TEST(Conv2d, GradientsMatchDoubles) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const auto& c : kCases)
      for (const Write write : {Write::overwrite, Write::add}) {
        const auto x = TypedValues::random(dtype, c.x, 1), weight = TypedValues::random(dtype, c.weight, 2);
        const auto dy = TypedValues::random(dtype, c.y(), 3);
        auto dx = TypedValues::random(dtype, c.x, 4), dweight = TypedValues::random(dtype, c.weight, 5);
        auto dbias = TypedValues::random(dtype, {c.weight[0]}, 6);
        Sums exact_dx(dx.elements()), exact_dweight(dweight.elements()), exact_dbias(dbias.elements());
        for (std::int64_t i = 0; i < dweight.elements() && write == Write::add; ++i) exact_dweight.add(i, dweight[i]);
        for (std::int64_t i = 0; i < dbias.elements() && write == Write::add; ++i) exact_dbias.add(i, dbias[i]);
        TypedValues scratch(DType::f32, {conv2d_scratch_elements(c.x, c.weight, c.options)});
        conv2d_backward(
            threads.stream,
            {x.view(), weight.view(), dy.view(), dx.view(), dweight.view(), dbias.view(), scratch.view(), write, write},
            c.options);
        for_products(c, [&](auto i, auto w, auto out) {
          exact_dx.add(i, dy[out] * weight[w]);
          exact_dweight.add(w, dy[out] * x[i]);
        });
        const auto places = c.out(2) * c.out(3);
        for (std::int64_t i = 0; i < dy.elements(); ++i) exact_dbias.add(i / places % c.weight[0], dy[i]);
        expect_near(dx, exact_dx.value, exact_dx.size);
        expect_near(dweight, exact_dweight.value, exact_dweight.size);
        expect_near(dbias, exact_dbias.value, exact_dbias.size);

        auto only_dweight = TypedValues::random(dtype, c.weight, 5);
        conv2d_backward(threads.stream,
                        {x.view(), weight.view(), dy.view(), {}, only_dweight.view(), {}, scratch.view(), write, write},
                        c.options);
        EXPECT_TRUE(only_dweight.bytes() == dweight.bytes());
      }
}

TEST(Conv2d, SameBitsForAnyThreadCount) {
  expect_same_bits_for_any_thread_count([](CpuStream& stream) {
    const ConvCase c{{37, 3, 12, 12}, {8, 3, 3, 3}, {1, 1}};
    const auto x = TypedValues::random(DType::f32, c.x, 1), weight = TypedValues::random(DType::f32, c.weight, 2);
    const auto bias = TypedValues::random(DType::f32, {8}, 3), dy = TypedValues::random(DType::f32, c.y(), 4);
    TypedValues y(DType::f32, c.y()), dx(DType::f32, c.x), dweight(DType::f32, c.weight), dbias(DType::f32, {8});
    TypedValues scratch(DType::f32, {conv2d_scratch_elements(c.x, c.weight, c.options)});
    conv2d(stream, x.view(), weight.view(), bias.view(), y.view(), scratch.view(), c.options);
    conv2d_backward(stream,
                    {x.view(), weight.view(), dy.view(), dx.view(), dweight.view(), dbias.view(), scratch.view(),
                     Write::overwrite, Write::overwrite},
                    c.options);
    return std::vector{y, dx, dweight, dbias};
  });
}

TEST(MaxPool2d, FindsTheFirstMaximumAndSendsTheGradientThere) {
  Threads threads(2);
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t size : {1, 2, 3}) {
      constexpr std::int64_t kHeight = 7, kWidth = 8;
      const Shape in{3, 5, kHeight, kWidth}, out{3, 5, kHeight / size, kWidth / size};
      auto x = TypedValues::random(dtype, in, 1);
      for (std::int64_t i = 0; i < x.elements(); ++i) x.set(i, std::round(static_cast<float>(x[i])));  // with ties
      const auto dy = TypedValues::random(dtype, out, 2);
      TypedValues y(dtype, out);
      auto dx = TypedValues::random(dtype, in, 3);
      std::vector<std::int32_t> indices(static_cast<std::size_t>(out.elements()));
      const View index_view{indices.data(), DType::i32, out};
      max_pool2d(threads.stream, x.view(), y.view(), index_view, size);
      max_pool2d_backward(threads.stream, dy.view(), index_view, dx.view());
      std::vector<double> expected_dx(static_cast<std::size_t>(x.elements()));
      for (std::int64_t i = 0; i < y.elements(); ++i) {
        const auto plane = i / (out[2] * out[3]), row = i / out[3] % out[2] * size, column = i % out[3] * size;
        std::int64_t best = row * kWidth + column;
        for (std::int64_t a = 0; a < size; ++a)
          for (std::int64_t b = 0; b < size; ++b) {
            const auto place = (row + a) * kWidth + column + b;
            if (x[plane * kHeight * kWidth + place] > x[plane * kHeight * kWidth + best]) best = place;
          }
        ASSERT_EQ(indices[static_cast<std::size_t>(i)], best);
        ASSERT_EQ(y[i], x[plane * kHeight * kWidth + best]);
        expected_dx[static_cast<std::size_t>(plane * kHeight * kWidth + best)] = dy[i];
      }
      for (std::int64_t i = 0; i < x.elements(); ++i) ASSERT_EQ(dx[i], expected_dx[static_cast<std::size_t>(i)]);
    }
}

TEST(MaxPool2d, ShowsNan) {
  Threads threads(1);
  TypedValues x(DType::f32, {1, 1, 2, 2}), y(DType::f32, {1, 1, 1, 1});
  x.set(1, std::numeric_limits<float>::quiet_NaN());
  x.set(3, 5);
  std::int32_t index = -1;
  max_pool2d(threads.stream, x.view(), y.view(), {&index, DType::i32, {1, 1, 1, 1}}, 2);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(index, 1);
}

}  // namespace
}  // namespace zeepo
