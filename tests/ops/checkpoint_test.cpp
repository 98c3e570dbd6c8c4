// Checkpointing with real ops: here because autograd/ knows none.
#include "zeepo/autograd/checkpoint.h"

#include "tests/support/gradient_check.h"
#include "zeepo/autograd/random_state.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/dropout.h"
#include "zeepo/ops/embedding.h"
#include "zeepo/ops/linear.h"

namespace zeepo {
namespace {

struct Outcome {
  std::vector<float> y, dx, dweight;
  std::uint64_t next_random;
  std::int64_t peak;
};

Outcome run(bool checkpointed) {
  TestDevice device;
  LeafStore store;
  const auto weight = make_leaf(random_tensor({8, 8}, 2, 0.4f), store);
  Tensor x = random_tensor({16, 8}, 1);
  x.set_gradient(std::make_shared<Gradient>(x.shape(), DType::f32));
  const auto block = [weight](const Tensor& in) {
    return add(in, dropout(gelu(linear(dropout(in, 0.2f), as_tensor(weight))), 0.3f));
  };
  RandomState::current() = {.key = {5}, .next = 0, .training = true};
  Outcome outcome;
  Tape tape;
  {
    Tensor y;
    {
      const TapeScope scope(&tape);
      y = x;
      for (int layer = 0; layer < 4; ++layer) y = checkpointed ? checkpoint(y, block) : block(y);
      y = dropout(y, 0.1f);
    }
    outcome.y = y.to_floats();
    outcome.peak = device.memory().current().total;
    const Tensor last = std::exchange(y, {});
    tape.backward(last, random_tensor(last.shape(), 3));
  }
  outcome.dx = x.gradient()->take().to_floats();
  outcome.dweight = store.of(*weight);
  outcome.next_random = RandomState::current().next;
  RandomState::current() = {};
  return outcome;
}

TEST(Checkpoint, GivesTheSameBitsAndKeepsLess) {
  const Outcome plain = run(false), checkpointed = run(true);
  EXPECT_EQ(plain.y, checkpointed.y);
  EXPECT_EQ(plain.dx, checkpointed.dx);
  EXPECT_EQ(plain.dweight, checkpointed.dweight);
  EXPECT_EQ(plain.next_random, checkpointed.next_random);
  EXPECT_EQ(plain.next_random, 9u);
  EXPECT_LT(checkpointed.peak, plain.peak * 2 / 3);
}

TEST(Checkpoint, ParametersInsideGetGradientsThoughTheInputIsData) {
  TestDevice device;
  const Tensor ids = int_tensor({1, 2, 1}, {3});
  expect_gradients({random_input("table", {4, 3}, 1)}, [&](auto in) {
    return checkpoint(ids, [table = in[0]](const Tensor& x) { return gelu(embedding(x, table)); });
  });
}

TEST(Checkpoint, OneInsideAnotherGivesTheSameGradients) {
  TestDevice device;
  expect_gradients({random_input("x", {3, 4}, 1), random_input("weight", {4, 4}, 2)}, [](auto in) {
    const auto inner = [w = in[1]](const Tensor& x) { return gelu(linear(x, w)); };
    return checkpoint(in[0], [inner](const Tensor& x) { return add(x, checkpoint(inner(x), inner)); });
  });
}

TEST(Checkpoint, WithoutATapeItIsTheFunctionAlone) {
  TestDevice device;
  int calls = 0;
  const Tensor x = random_tensor({2, 2}, 1);
  const Tensor y = checkpoint(x, [&](const Tensor& in) {
    ++calls;
    return gelu(in);
  });
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(y.gradient(), nullptr);
  EXPECT_EQ(y.to_floats(), gelu(x).to_floats());
}

}  // namespace
}  // namespace zeepo
