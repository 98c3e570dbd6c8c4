#include "zeepo/ops/tiled_linear.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/ops/add.h"

namespace zeepo {
namespace {

constexpr std::int64_t kIn = 1300, kOut = 1100;  // two pieces of k each way

Tensor of_type(DType dtype, Shape shape, std::uint64_t seed) {
  const Tensor wide = random_tensor(shape, seed), result(shape, dtype);
  launch([&](auto& s) { copy(s, wide.view(), result.view()); });
  return result;
}

struct Setting {
  DType dtype;
  WeightLayout layout;
  bool bias, added;  // added: x has a gradient already when it gets this one
  std::int64_t rows = 9;
};

struct Result {
  std::vector<float> y, dx, dbias, dweight;
  friend bool operator==(const Result&, const Result&) = default;
};

// Cut at `ends`; none: whole.
Result run(const Setting& c, const std::vector<std::int64_t>& ends) {
  LeafStore store;
  const bool out_in = c.layout == WeightLayout::out_in;
  const Shape shape = out_in ? Shape{kOut, kIn} : Shape{kIn, kOut};
  const Tensor weight = of_type(c.dtype, shape, 2);
  const auto x = make_leaf(of_type(c.dtype, {3, c.rows / 3, kIn}, 1), store);
  const auto bias = make_leaf(of_type(c.dtype, {kOut}, 3), store);
  std::vector<std::shared_ptr<Leaf>> tiles;
  Tape tape;
  Tensor y, input;
  {
    const TapeScope scope(&tape);
    input = add(as_tensor(x), as_tensor(x));
    const Tensor given = c.bias ? as_tensor(bias) : Tensor();
    if (ends.empty()) {
      tiles.push_back(make_leaf(weight, store));
      y = linear(input, as_tensor(tiles[0]), given, c.layout);
    } else {
      TiledLinear product(input, given, shape[0], c.layout);
      std::vector<std::int64_t> begins{0};
      for (const std::int64_t end : ends) {
        tiles.push_back(make_leaf(weight.part(begins.back() * shape[1], {end - begins.back(), shape[1]}), store));
        begins.push_back(end);
      }
      for (std::size_t i = 0; i < ends.size(); ++i) {
        const bool up = TiledLinear::order(c.layout) == TiledLinear::Order::first_row_first;
        const std::size_t tile = up ? i : ends.size() - 1 - i;
        product.multiply(as_tensor(tiles[tile]), begins[tile]);
      }
      y = product.finish();
    }
  }
  if (c.added) input.gradient()->add(of_type(c.dtype, input.shape(), 4));
  Result result{.y = y.to_floats(), .dx = {}, .dbias = {}, .dweight = {}};
  tape.backward(y, of_type(c.dtype, y.shape(), 5));
  result.dx = store.of(*x);
  if (c.bias) result.dbias = store.of(*bias);
  for (const auto& tile : tiles)
    for (const float value : store.of(*tile)) result.dweight.push_back(value);
  return result;
}

TEST(TiledLinear, GivesTheBitsOfTheWholeLayer) {
  TestDevice device;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out})
      for (const bool more : {false, true}) {
        const Setting setting{.dtype = dtype, .layout = layout, .bias = more, .added = more};
        const Result whole = run(setting, {});
        const std::int64_t rows = layout == WeightLayout::out_in ? kOut : kIn;
        for (const std::vector<std::int64_t>& ends :
             {std::vector<std::int64_t>{rows}, {rows / 2, rows}, {1, 333, 700, rows - 1, rows}})
          EXPECT_TRUE(run(setting, ends) == whole)
              << name_of(dtype) << ", " << (layout == WeightLayout::out_in ? "out_in, " : "in_out, ") << ends.size()
              << " tiles, " << (more ? "bias and an earlier gradient" : "bare");
      }
}

// Token generation.
TEST(TiledLinear, GivesTheBitsOfTheWholeLayerWithFewRows) {
  TestDevice device;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out})
      for (const std::int64_t few : {3, 6}) {
        const Setting setting{.dtype = dtype, .layout = layout, .bias = true, .added = true, .rows = few};
        const std::int64_t rows = layout == WeightLayout::out_in ? kOut : kIn;
        EXPECT_TRUE(run(setting, {400, 500, rows}) == run(setting, {})) << name_of(dtype) << ", " << few << " rows";
      }
}

TEST(TiledLinear, FrozenTilesGetNoGradientAndPassItOn) {
  TestDevice device;
  LeafStore store;
  const auto x = make_leaf(random_tensor({9, 7}, 1), store);
  const auto first = make_leaf(random_tensor({2, 7}, 2), store), second = make_leaf(random_tensor({3, 7}, 3), store);
  second->set_trainable(false);
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    TiledLinear product(as_tensor(x), {}, 5, WeightLayout::out_in);
    product.multiply(as_tensor(second), 2);
    product.multiply(as_tensor(first), 0);
    y = product.finish();
  }
  tape.backward(y, random_tensor({9, 5}, 4));
  EXPECT_TRUE(store.has(*x));
  EXPECT_TRUE(store.has(*first));
  EXPECT_FALSE(store.has(*second));
}

TEST(TiledLinear, ErrorsNameTheShapes) {
  TestDevice device;
  EXPECT_TRUE(names(error_text([] { TiledLinear(Tensor({2, 3}), {}, 4, WeightLayout::in_out); }), "(2, 3)", "4"));
  TiledLinear product(Tensor({2, 3}), {}, 4, WeightLayout::out_in);
  EXPECT_TRUE(names(error_text([&] { product.multiply(Tensor({2, 5}), 0); }), "(2, 3)", "(2, 5)"));
  EXPECT_TRUE(names(error_text([&] { product.multiply(Tensor({2, 3}), 3); }), "3 to 5 of 4"));
}

}  // namespace
}  // namespace zeepo
