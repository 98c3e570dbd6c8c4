#include "zeepo/nn/module.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/autograd/tape.h"
#include "zeepo/nn/layers.h"
#include "zeepo/ops/activation.h"

namespace zeepo {
namespace {

class Inner : public Module {
 public:
  Inner() : a_(child<Linear>("a", 3, 4)), b_(child<Linear>("b", 4, 2)) {}
  Tensor forward(const Tensor& x) override { return b_(gelu(a_(x))); }

 private:
  Linear &a_, &b_;
};

class Outer : public Module {
 public:
  Outer() : own_(parameter("own", {5}, Init::ones())), inner(child<Inner>("inner")), unnamed(child<RmsNorm>("", 7)) {}

 private:
  Parameter& own_;

 public:
  Inner& inner;
  RmsNorm& unnamed;
};

std::vector<std::string> full_names(const Module& module) {
  std::vector<std::string> result;
  for (const auto& [prefix, parameter] : named_parameters(module))
    for (const auto& slice : parameter->slices()) result.push_back(prefix + slice.name);
  return result;
}

TEST(Module, NamesFollowTheTreeInTheOrderOfMaking) {
  const Outer outer;
  EXPECT_EQ(full_names(outer), (std::vector<std::string>{"own", "inner.a.weight", "inner.a.bias", "inner.b.weight",
                                                         "inner.b.bias", "weight"}));
}

TEST(Module, ForEachVisitsOutermostFirst) {
  Outer outer;
  std::vector<const Module*> seen;
  for_each_module(outer, [&](Module& module) { seen.push_back(&module); });
  ASSERT_EQ(seen.size(), 5u);
  EXPECT_EQ(seen[0], &outer);
  EXPECT_EQ(seen[1], &outer.inner);
  EXPECT_EQ(seen[4], &outer.unnamed);
}

TEST(Linear, PartsAreOneParameterWithNamedSlices) {
  const Linear linear(3, std::vector<Linear::Part>{{"q", 4}, {"k", 2}}, {});
  EXPECT_EQ(full_names(linear), (std::vector<std::string>{"q.weight", "k.weight", "q.bias", "k.bias"}));
  ASSERT_EQ(linear.own_parameters().size(), 2u);
  EXPECT_EQ(linear.own_parameters()[0]->shape(), (Shape{6, 3}));
  EXPECT_EQ(linear.own_parameters()[0]->slices()[1].shape, (Shape{2, 3}));
}

TEST(Linear, LayoutsBiasesAndFirstValuesAreThoseAskedFor) {
  const Linear plain(4, 9);
  EXPECT_EQ(plain.own_parameters()[0]->shape(), (Shape{9, 4}));
  EXPECT_EQ(plain.own_parameters()[0]->init().kind, Init::Kind::uniform);
  EXPECT_FLOAT_EQ(plain.own_parameters()[0]->init().scale, 0.5f);
  const Linear turned(4, 9, {.bias = Bias::no, .layout = WeightLayout::in_out, .init_deviation = 0.1f});
  ASSERT_EQ(turned.own_parameters().size(), 1u);
  EXPECT_EQ(turned.own_parameters()[0]->shape(), (Shape{4, 9}));
  EXPECT_EQ(turned.own_parameters()[0]->init().kind, Init::Kind::normal);
}

TEST(Parameter, SlicesMustFillIt) {
  Parameter parameter("w", {4, 3}, Init::zeros());
  parameter.set_slices({{"a", {1, 3}}, {"b", {3, 3}}});
  EXPECT_TRUE(names(error_text([&] { parameter.set_slices({{"a", {2, 3}}}); }), "w", "6", "12"));
}

TEST(Parameter, UsedWithoutMemoryItSaysSo) {
  const Parameter parameter("w", {4, 3}, Init::zeros());
  EXPECT_TRUE(names(error_text([&] { (void)Tensor(parameter); }), "parameter w", "no memory"));
}

TEST(Module, WithoutAForwardOfOneInputItSaysSo) {
  class Bare : public Module {};
  Bare bare;
  EXPECT_TRUE(names(error_text([&] { bare(Tensor()); }), "forward"));
}

class Recorder final : public VisitHooks {
 public:
  void before_forward(Module&) override { text += "F("; }
  void after_forward(Module&) override { text += ")"; }
  void before_backward(Module&) override { text += "B("; }
  void after_backward(Module&) override { text += ")"; }
  std::string text;
};

void give_weights(Module& module, LeafStore& store) {
  for (const auto& [prefix, parameter] : named_parameters(module)) {
    parameter->leaf().set_current(random_tensor(parameter->shape(), 1));
    parameter->leaf().set_store(&store);
  }
}

TEST(Module, HooksFrameTheForwardAndTheBackwardPass) {
  TestDevice device;
  for (const bool checkpointed : {false, true}) {
    Inner inner;
    LeafStore store;
    give_weights(inner, store);
    Recorder recorder;
    inner.attach(&recorder);
    inner.set_checkpointed(checkpointed);
    (void)inner(random_tensor({2, 3}, 2));  // no tape: no backward visit
    EXPECT_EQ(recorder.text, "F()");
    Tape tape;
    Tensor y;
    {
      const TapeScope scope(&tape);
      y = inner(random_tensor({2, 3}, 2));
    }
    tape.mark([&] { recorder.text += "|"; });
    tape.backward(y, random_tensor({2, 2}, 3));
    EXPECT_EQ(recorder.text, "F()F()|B()") << checkpointed;
    for (const auto& [prefix, parameter] : named_parameters(inner)) EXPECT_TRUE(store.has(parameter->leaf()));
    inner.attach(nullptr);
  }
}

// Whole or in tiles: what the two ops give, in one visit of the layer.
TEST(Linear, OfActivatedIsTheLayerOfTheActivation) {
  TestDevice device;
  for (const std::int64_t tiles : {1, 2}) {
    Linear layer(6, 4);
    tile_linears(layer, tiles);
    LeafStore store;
    give_weights(layer, store);
    Recorder recorder;
    layer.attach(&recorder);
    const Tensor x = random_tensor({5, 6}, 2), expected = layer(gelu(x));
    recorder.text.clear();
    Tape tape;
    Tensor y;
    {
      const TapeScope scope(&tape);
      y = layer.of_activated(x, Activation::gelu_tanh);
    }
    tape.backward(y, random_tensor({5, 4}, 3));
    EXPECT_EQ(recorder.text, "F()B()");
    EXPECT_EQ(y.to_floats(), expected.to_floats());
    for (const auto& [prefix, parameter] : named_parameters(layer)) EXPECT_TRUE(store.has(parameter->leaf()));
    layer.attach(nullptr);
  }
}

}  // namespace
}  // namespace zeepo
