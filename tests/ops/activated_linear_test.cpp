#include "zeepo/ops/activated_linear.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"

namespace zeepo {
namespace {

Tensor random_of(DType dtype, Shape shape, std::uint64_t seed) {
  const Tensor wide = random_tensor(shape, seed), narrow(shape, dtype);
  launch([&](auto& s) { copy(s, wide.view(), narrow.view()); });
  return narrow;
}

TEST(ActivatedLinear, GradientsOfEveryLayoutAgreeWithDifferences) {
  TestDevice device;
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    const Shape weight = layout == WeightLayout::out_in ? Shape{5, 7} : Shape{7, 5};
    const auto x = random_input("x", {2, 3, 7}, 1), w = random_input("weight", weight, 2),
               b = random_input("bias", {5}, 3);
    expect_gradients({x, w, b},
                     [&](auto in) { return activated_linear(in[0], Activation::gelu_tanh, in[1], in[2], layout); });
    expect_gradients({x, w}, [&](auto in) { return activated_linear(in[0], Activation::silu, in[1], {}, layout); });
  }
}

TEST(ActivatedLinear, AddsToAGradientThatIsThere) {
  TestDevice device;
  expect_gradients({random_input("x", {3, 4}, 1), random_input("weight", {4, 4}, 2)}, [](auto in) {
    return add(activated_linear(in[0], Activation::gelu_tanh, in[1]), add(in[0], linear(in[0], in[1])));
  });
}

TEST(ActivatedLinear, OnlyWhatIsWantedGetsAGradient) {
  TestDevice device;
  const Tensor x = random_tensor({3, 7}, 1), weight = random_tensor({5, 7}, 2);  // data
  expect_gradients({random_input("weight", {5, 7}, 2)},
                   [&](auto in) { return activated_linear(x, Activation::gelu_tanh, in[0]); });
  expect_gradients({random_input("x", {3, 7}, 1)},
                   [&](auto in) { return activated_linear(in[0], Activation::gelu_tanh, weight); });
}

TEST(ActivatedLinear, GivesTheBitsOfItsParts) {
  TestDevice device;
  const auto layout = WeightLayout::in_out;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t rows : {3, 40}) {
      const auto run = [&](const TensorFunction& f) {
        LeafStore store;
        std::vector<std::shared_ptr<Leaf>> leaves;
        std::vector<Tensor> in;
        for (const Shape& shape : {Shape{rows, 24}, Shape{24, 16}, Shape{16}}) {
          leaves.push_back(make_leaf(random_of(dtype, shape, leaves.size()), store));
          in.push_back(as_tensor(leaves.back()));
        }
        Tape tape;
        Tensor y;
        {
          const TapeScope scope(&tape);
          y = f(in);
        }
        tape.backward(y, random_of(dtype, {rows, 16}, 6));
        std::vector<std::vector<float>> values = {y.to_floats()};
        for (const auto& leaf : leaves) values.push_back(store.of(*leaf));
        return values;
      };
      EXPECT_EQ(run([&](auto in) { return activated_linear(in[0], Activation::gelu_tanh, in[1], in[2], layout); }),
                run([&](auto in) { return linear(gelu(in[0]), in[1], in[2], layout); }))
          << name_of(dtype) << ", " << rows << " rows";
    }
}

TEST(ActivatedLinear, ErrorsNameTheShapes) {
  TestDevice device;
  const Tensor x({2, 3}), weight({5, 4});
  EXPECT_TRUE(names(error_text([&] { activated_linear(x, Activation::relu, weight); }), "linear", "(2, 3)", "(5, 4)"));
}

}  // namespace
}  // namespace zeepo
