#include "zeepo/autograd/tape.h"

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/kernels/elementwise.h"

namespace zeepo {
namespace {

// Small recorded functions: this layer knows no op.
Tensor scaled(const Tensor& x, float factor) {
  Tensor y(x.shape());
  launch([&](auto& s) { scale(s, x.view(), factor, y.view()); });
  if (Tape* tape = Tape::recording({&x}))
    tape->record({&y}, [factor, dx = wanted_gradient(x)](std::span<Tensor> dy) {
      const Tensor d = writable(std::move(dy[0]));
      launch([&](auto& s) { scale(s, d.view(), factor, d.view()); });  // in place
      dx->add(d);
    });
  return y;
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  Tensor y(a.shape());
  launch([&](auto& s) { add(s, a.view(), b.view(), y.view()); });
  if (Tape* tape = Tape::recording({&a, &b}))
    tape->record({&y}, [da = wanted_gradient(a), db = wanted_gradient(b)](std::span<Tensor> dy) {
      if (da) da->add(dy[0]);  // both keep the same memory
      if (db) db->add(dy[0]);
    });
  return y;
}

// x² with a saved input.
Tensor squared(const Tensor& x) {
  const auto values = x.to_floats();
  std::vector<float> squares;
  for (const float v : values) squares.push_back(v * v);
  Tensor y = Tensor::from<float>(squares, x.shape());
  if (Tape* tape = Tape::recording({&x}))
    tape->record({&y}, [saved = tape->save(x), dx = wanted_gradient(x)](std::span<Tensor> dy) {
      const auto input = saved().to_floats();
      auto d = dy[0].to_floats();
      for (std::size_t i = 0; i < d.size(); ++i) d[i] *= 2 * input[i];
      dx->add(Tensor::from<float>(d, dy[0].shape()));
    });
  return y;
}

Tensor vector(const std::vector<float>& values) {
  return Tensor::from<float>(values, {static_cast<std::int64_t>(values.size())});
}

Tensor with_gradient(Tensor x) {
  x.set_gradient(std::make_shared<Gradient>(x.shape(), x.dtype()));
  return x;
}

std::vector<float> gradient(const Tensor& x) { return x.gradient()->value().to_floats(); }

using Floats = std::vector<float>;

TEST(Tape, ContributionsOfSeveralUsesAddUp) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1, 2}));
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    y = sum_of(sum_of(scaled(x, 2), x), scaled(x, 5));
  }
  tape.backward(y, vector({1, 10}));
  EXPECT_EQ(gradient(x), (Floats{8, 80}));
}

// d(residual) goes to both branches as one tensor; the branch that scales it in place must not change the other.
TEST(Tape, ASharedGradientIsNotOverwritten) {
  TestDevice device;
  for (const bool residual_first : {false, true}) {
    const Tensor x = with_gradient(vector({1, 1})), other = with_gradient(vector({0, 0}));
    Tape tape;
    Tensor y;
    {
      const TapeScope scope(&tape);
      const Tensor branch = scaled(x, 3);
      y = residual_first ? sum_of(other, branch) : sum_of(branch, other);
    }
    tape.backward(y, vector({1, 2}));
    EXPECT_EQ(gradient(x), (Floats{3, 6})) << residual_first;
    EXPECT_EQ(gradient(other), (Floats{1, 2})) << residual_first;
  }
}

TEST(Tape, TheCallersGradientIsNotOverwritten) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1, 1})), start = vector({1, 2});
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    y = scaled(x, 3);
  }
  tape.backward(y, start);
  EXPECT_EQ(start.to_floats(), (Floats{1, 2}));
}

TEST(Gradient, ALaterContributionDoesNotChangeAnEarlierOnesMemory) {
  TestDevice device;
  Gradient gradient({2}, DType::f32);
  const Tensor first = vector({1, 2}), second = vector({10, 20});
  gradient.add(first);
  gradient.add(second);
  gradient.add(second);
  EXPECT_EQ(gradient.value().to_floats(), (Floats{21, 42}));
  EXPECT_EQ(first.to_floats(), (Floats{1, 2}));
  Gradient target({2}, DType::f32);
  target.add(first);
  const auto [memory, write] = target.target();
  EXPECT_EQ(write, Write::add);
  EXPECT_NE(memory.view().data, first.view().data);
  EXPECT_EQ(memory.to_floats(), (Floats{1, 2}));
  EXPECT_TRUE(names(error_text([&] { gradient.add(vector({1, 2, 3})); }), "(3)", "(2)"));
}

TEST(Tape, AFrozenLeafGetsNoGradientAndRecordsNothing) {
  TestDevice device;
  LeafStore store;
  const auto frozen = make_leaf(vector({1, 2}), store), trained = make_leaf(vector({3, 4}), store);
  frozen->set_trainable(false);
  Tape tape;
  Tensor y, alone;
  {
    const TapeScope scope(&tape);
    y = sum_of(as_tensor(frozen), scaled(as_tensor(trained), 2));
    alone = scaled(as_tensor(frozen), 2);
  }
  EXPECT_EQ(alone.gradient(), nullptr);
  tape.backward(y, vector({1, 1}));
  EXPECT_FALSE(store.has(*frozen));
  EXPECT_EQ(store.of(*trained), (Floats{2, 2}));
}

TEST(Tape, WithoutATapeOrATrainableInputNothingIsRecorded) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1, 2}));
  EXPECT_EQ(scaled(x, 2).gradient(), nullptr);
  Tape tape;
  const TapeScope scope(&tape);
  EXPECT_EQ(scaled(vector({1}), 2).gradient(), nullptr);
  {
    const TapeScope none(nullptr);
    EXPECT_EQ(scaled(x, 2).gradient(), nullptr);
    EXPECT_EQ(Tape::current(), nullptr);
  }
  EXPECT_EQ(Tape::current(), &tape);
  EXPECT_NE(scaled(x, 2).gradient(), nullptr);
}

TEST(Tape, EveryEntryIsFreedAsThePassGoes) {
  TestDevice device;
  const Tensor start = vector(Floats(1000, 1)), x = with_gradient(vector(Floats(1000, 1)));
  const auto before = device.memory().current();
  {
    Tape tape;
    Tensor y;
    std::vector<std::int64_t> in_use;
    {
      const TapeScope scope(&tape);
      y = x;
      for (int i = 0; i < 5; ++i) {
        y = squared(y);
        tape.mark([&] { in_use.push_back(device.memory().current().total); });
      }
    }
    const Tensor last = std::exchange(y, {});
    EXPECT_GE(device.memory().current().total, before.total + 5 * 4000);
    tape.backward(last, start);
    ASSERT_EQ(in_use.size(), 5u);
    for (std::size_t i = 1; i < in_use.size(); ++i) EXPECT_LT(in_use[i], in_use[i - 1] + 1) << i;
    EXPECT_EQ(device.memory().current().total, before.total + 2 * 4000);  // `last` and the gradient of x
  }
  x.gradient()->take();
  EXPECT_EQ(device.memory().current().total, before.total);
}

TEST(Tape, BranchesWithoutGradientDoNotRun) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1, 2}));
  bool ran = false;
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    y = scaled(x, 2);
    Tensor unused = scaled(x, 7);
    tape.record({&unused}, [&](std::span<Tensor>) { ran = true; });
  }
  tape.backward(y, vector({1, 1}));
  EXPECT_FALSE(ran);
  EXPECT_EQ(gradient(x), (Floats{2, 2}));
}

TEST(Tape, AnEntryOfTwoOutputsRunsWhenOneHasAGradient) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1, 2}));
  Tape tape;
  Tensor a = vector({1, 2}), b = vector({1, 2});
  tape.record({&a, &b}, [dx = x.gradient()](std::span<Tensor> d) {
    ASSERT_EQ(d.size(), 2u);
    EXPECT_FALSE(d[0].defined());
    dx->add(d[1]);
  });
  tape.backward(b, vector({3, 4}));
  EXPECT_EQ(gradient(x), (Floats{3, 4}));
}

TEST(Tape, MarksRunInTheirPlaceOfTheReverseOrder) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1}));
  std::string order;
  Tape tape;
  Tensor y;
  {
    const TapeScope scope(&tape);
    tape.mark([&] { order += "c"; });
    y = scaled(x, 2);
    tape.mark([&] { order += x.gradient()->written() ? "?" : "b"; });
    y = scaled(y, 2);
    tape.mark([&] { order += "a"; });
  }
  tape.backward(y);
  EXPECT_EQ(order, "abc");
}

TEST(Tape, TheLossScaleIsWhereThePassStarts) {
  TestDevice device;
  const Tensor x = with_gradient(vector({3}));
  Tape tape(512);
  Tensor y;
  {
    const TapeScope scope(&tape);
    y = squared(x);
  }
  tape.backward(y);
  EXPECT_EQ(gradient(x), (Floats{512 * 6}));
}

TEST(Tape, NestedTapesKeepApart) {
  TestDevice device;
  const Tensor x = with_gradient(vector({3})), z = with_gradient(vector({5}));
  Tape outer;
  Tensor y;
  {
    const TapeScope scope(&outer);
    y = scaled(x, 2);
    Tape inner;
    Tensor w;
    {
      const TapeScope inner_scope(&inner);
      w = squared(z);
    }
    EXPECT_EQ(Tape::current(), &outer);
    inner.backward(w);
    EXPECT_EQ(gradient(z), (Floats{10}));
    EXPECT_FALSE(x.gradient()->written());
    EXPECT_EQ(Tape::current(), &outer);
  }
  outer.backward(y);
  EXPECT_EQ(gradient(x), (Floats{2}));
  EXPECT_EQ(Tape::current(), nullptr);
}

TEST(Tape, ErrorsSayWhatIsWrongWithTheLoss) {
  TestDevice device;
  const Tensor x = with_gradient(vector({1, 2}));
  Tape tape;
  const TapeScope scope(&tape);
  const Tensor y = scaled(x, 2), other = scaled(x, 3);
  EXPECT_TRUE(names(error_text([&] { tape.backward(y); }), "backward", "(2)", "one element"));
  EXPECT_TRUE(names(error_text([&] { tape.backward(vector({1})); }), "no trainable parameter"));
  tape.require_root(other);
  EXPECT_TRUE(names(error_text([&] { tape.backward(y, vector({1, 1})); }), "must start from that loss"));
  tape.backward(other, vector({1, 1}));
  EXPECT_EQ(gradient(x), (Floats{3, 3}));
}

TEST(Leaf, WithoutAPlaceForItsGradientItSaysSo) {
  TestDevice device;
  Leaf leaf({2, 3}, DType::f32);
  EXPECT_TRUE(names(error_text([&] { leaf.target(); }), "(2, 3)", "no place"));
}

// Counts what it is given, and gives back something else.
class Negating final : public SaveHook {
 public:
  Saved save(const Tensor& value) override {
    ++saved;
    std::vector<float> negative = value.to_floats();
    for (float& v : negative) v = -v;
    return [kept = vector(negative)] { return kept; };
  }
  int saved = 0;
};

TEST(SaveHook, SeesEverySavedValueAndItsAnswerIsUsed) {
  TestDevice device;
  const Tensor x = with_gradient(vector({3}));
  Negating hook;
  Tape tape;
  Tensor y;
  {
    const SaveHookScope hooked(hook);
    const TapeScope scope(&tape);
    y = squared(squared(x));
  }
  EXPECT_EQ(hook.saved, 2);
  EXPECT_NE(&SaveHook::current(), &hook);
  tape.backward(y);
  EXPECT_EQ(gradient(x), (Floats{2 * 3 * 2 * 9}));  // both signs turned
  const Tensor z = with_gradient(vector({3}));
  Tape once;
  {
    const SaveHookScope hooked(hook);
    const TapeScope scope(&once);
    y = squared(z);
  }
  once.backward(y);
  EXPECT_EQ(gradient(z), (Floats{-6}));
}

TEST(SaveHook, AParameterIsLookedUpAgainInsteadOfSaved) {
  TestDevice device;
  LeafStore store;
  const auto leaf = make_leaf(vector({3}), store);
  Negating hook;
  Tape tape;
  Tensor y;
  {
    const SaveHookScope hooked(hook);
    const TapeScope scope(&tape);
    y = squared(as_tensor(leaf));
  }
  EXPECT_EQ(hook.saved, 0);
  leaf->set_current(vector({5}));  // it has moved meanwhile
  tape.backward(y);
  EXPECT_EQ(store.of(*leaf), (Floats{10}));
}

}  // namespace
}  // namespace zeepo
