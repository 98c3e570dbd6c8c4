#include "zeepo/kernels/conv.h"

#include "tests/kernels/cuda/cuda_checks.h"

namespace zeepo {
namespace {

struct Case {
  std::int64_t images, in, size, out, kernel, stride, padding;
};
constexpr Case kCases[] = {
    {1, 1, 5, 1, 3, 1, 0}, {5, 3, 9, 4, 3, 1, 1}, {17, 2, 11, 5, 5, 2, 2}, {3, 4, 8, 6, 1, 3, 0}};

TEST(CudaConv, ConvolutionAndItsGradientsAreNearTheCpus) {
  for (const SummedTypes types : kSummedTypes)
    for (const Case& c : kCases)
      for (const Write write : {Write::overwrite, Write::add}) {
        const DType dtype = types.values;
        const ConvOptions options{.stride = c.stride, .padding = c.padding};
        const std::int64_t side = (c.size + 2 * c.padding - c.kernel) / c.stride + 1;
        const Shape image{c.images, c.in, c.size, c.size}, filter{c.out, c.in, c.kernel, c.kernel};
        const Shape result{c.images, c.out, side, side};
        auto x = Twin::random(dtype, image, 1), weight = Twin::random(dtype, filter, 2);
        auto bias = Twin::random(dtype, {c.out}, 3), dy = Twin::random(dtype, result, 4);
        auto dweight = Twin::random(types.sums, filter, 5), dbias = Twin::random(types.sums, {c.out}, 6);
        Twin y(dtype, result), dx(dtype, image);
        Twin scratch(DType::f32, {conv2d_scratch_elements(image, filter, options)});
        on_both([&](auto& s) {
          conv2d(s, x.on(s), weight.on(s), write == Write::add ? View{} : bias.on(s), y.on(s), scratch.on(s), options);
          conv2d_backward(s,
                          {.x = x.on(s),
                           .weight = weight.on(s),
                           .dy = dy.on(s),
                           .dx = dx.on(s),
                           .dweight = dweight.on(s),
                           .dbias = dbias.on(s),
                           .scratch = scratch.on(s),
                           .write_dweight = write,
                           .write_dbias = write},
                          options);
        });
        const auto what = name_of_case(dtype, c.images, c.in, c.kernel);
        y.expect_near(2e-6, 10, "y " + what);
        dx.expect_near(2e-6, 10, "dx " + what);
        dweight.expect_near(2e-6, 30, "dweight " + what);
        dbias.expect_near(2e-6, 30, "dbias " + what);
      }
}

TEST(CudaConv, MaxPoolHasTheBitsOfTheCpu) {
  for (const DType dtype : kFloatTypes)
    for (const std::int64_t size : {1, 2, 3}) {
      const Shape image{3, 4, 11, 8}, result{3, 4, 11 / size, 8 / size};
      auto values = TypedValues::random(dtype, image, 1);
      values.set(20, std::nanf(""));
      values.set(40, static_cast<float>(values[41]));
      Twin x(values), y(dtype, result), dx(dtype, image);
      auto dy = Twin::random(dtype, result, 2);
      Twin indices(TypedValues(DType::i32, result));
      on_both([&](auto& s) {
        max_pool2d(s, x.on(s), y.on(s), indices.on(s), size);
        max_pool2d_backward(s, dy.on(s), indices.on(s), dx.on(s));
      });
      y.expect_same_bits("max_pool2d " + name_of_case(dtype, size));
      indices.expect_same_bits("indices " + name_of_case(dtype, size));
      dx.expect_same_bits("max_pool2d_backward " + name_of_case(dtype, size));
    }
}

}  // namespace
}  // namespace zeepo
