#include "zeepo/ops/loss.h"

#include <cmath>
#include <limits>

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/ops/embedding.h"
#include "zeepo/ops/linear.h"

namespace zeepo {
namespace {

TEST(CrossEntropy, GradientsAgreeWithDifferences) {
  TestDevice device;
  const Tensor targets = int_tensor({0, 4, 2, 4, 1}, {5});
  expect_gradients({random_input("logits", {5, 7}, 1, 2)}, [&](auto in) { return cross_entropy(in[0], targets); });
}

TEST(HeadCrossEntropy, GradientsAgreeWithDifferences) {
  TestDevice device;
  const Tensor targets = int_tensor({0, 4, 2, 4, 1, 6}, {2, 3});
  expect_gradients({random_input("x", {2, 3, 5}, 1), random_input("weight", {7, 5}, 2)},
                   [&](auto in) { return head_cross_entropy(in[0], in[1], targets); });
}

TEST(HeadCrossEntropy, TargetsThatDoNotCountAreLeftOutAndTheSumIsDivided) {
  TestDevice device;
  const Tensor targets = int_tensor({0, -1, 2, -1, -1, 6}, {2, 3});
  expect_gradients({random_input("x", {2, 3, 5}, 1), random_input("weight", {7, 5}, 2)},
                   [&](auto in) { return head_cross_entropy(in[0], in[1], targets, 3.0f); });
  const Tensor x = random_tensor({6, 5}, 1), weight = random_tensor({7, 5}, 2);
  float sum = 0;
  for (const auto& [row, target] : {std::pair{0, 0}, {2, 2}, {5, 6}})
    sum += head_cross_entropy(x.part(row * 5, {1, 5}), weight, int_tensor({target}, {1})).item();
  EXPECT_NEAR(head_cross_entropy(x, weight, targets, 2.5f).item(), sum / 2.5f, 1e-5f);
  const Tensor none = int_tensor({-1, -1, -1, -1, -1, -1}, {6});
  EXPECT_EQ(head_cross_entropy(x, weight, none, std::numeric_limits<float>::infinity()).item(), 0);
}

TEST(HeadCrossEntropy, GradientsOfATiedWeightAddUp) {
  TestDevice device;
  const Tensor ids = int_tensor({1, 3, 3, 0}, {2, 2}), targets = int_tensor({3, 0, 1, 2}, {2, 2});
  expect_gradients({random_input("table", {5, 4}, 1)},
                   [&](auto in) { return head_cross_entropy(embedding(ids, in[0]), in[0], targets); });
}

// The fused head computes some rows at a time; this many logits need several pieces, the last one shorter.
TEST(HeadCrossEntropy, PiecesTogetherGiveTheWholeLossAndItsGradients) {
  TestDevice device;
  const std::int64_t rows = 81, width = 3, vocab = 500'000;
  ASSERT_GT(rows * vocab, 1 << 25);
  const Tensor x = random_tensor({rows, width}, 1), weight = random_tensor({vocab, width}, 2);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i * 6'000 + 7);
  const Tensor targets = int_tensor(ids, {rows});

  struct Result {
    float loss;
    std::vector<float> dx, dweight;
  };
  const auto run = [&](bool fused) {
    LeafStore store;
    const auto x_leaf = make_leaf(x, store), weight_leaf = make_leaf(weight, store);
    Tape tape;
    Tensor loss;
    {
      const TapeScope scope(&tape);
      loss = fused ? head_cross_entropy(as_tensor(x_leaf), as_tensor(weight_leaf), targets)
                   : cross_entropy(linear(as_tensor(x_leaf), as_tensor(weight_leaf)), targets);
    }
    tape.backward(loss);
    return Result{loss.item(), store.of(*x_leaf), store.of(*weight_leaf)};
  };
  const Result whole = run(false), pieces = run(true);
  EXPECT_NEAR(pieces.loss, whole.loss, 1e-5);
  for (std::size_t i = 0; i < whole.dx.size(); ++i) ASSERT_NEAR(pieces.dx[i], whole.dx[i], 1e-6) << i;
  for (std::size_t i = 0; i < whole.dweight.size(); ++i)
    ASSERT_NEAR(pieces.dweight[i], whole.dweight[i], 1e-7 + 1e-5 * std::abs(whole.dweight[i])) << i;
}

TEST(HeadCrossEntropy, TheLossScaleReachesItsGradients) {
  TestDevice device;
  const Tensor x = random_tensor({3, 4}, 1), weight = random_tensor({5, 4}, 2), targets = int_tensor({1, 0, 4}, {3});
  const auto gradient = [&](float scale) {
    LeafStore store;
    const auto leaf = make_leaf(weight, store);
    Tape tape(scale);
    Tensor loss;
    {
      const TapeScope scope(&tape);
      loss = head_cross_entropy(x, as_tensor(leaf), targets);
    }
    tape.backward(loss);
    return store.of(*leaf);
  };
  const auto plain = gradient(1), scaled = gradient(64);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(scaled[i], 64 * plain[i], 1e-5 * std::abs(scaled[i])) << i;
}

TEST(HeadCrossEntropy, ThePassMustStartFromItsLoss) {
  TestDevice device;
  LeafStore store;
  const auto leaf = make_leaf(random_tensor({5, 4}, 2), store);
  Tape tape;
  const TapeScope scope(&tape);
  const Tensor x = random_tensor({3, 4}, 1);
  const Tensor other = linear(x, as_tensor(leaf));
  (void)head_cross_entropy(x, as_tensor(leaf), int_tensor({1, 0, 4}, {3}));
  EXPECT_TRUE(names(error_text([&] { tape.backward(other, other.detached()); }), "backward", "fused head"));
}

TEST(Loss, ErrorsNameTheShapes) {
  TestDevice device;
  const Tensor targets = int_tensor({1, 2, 3}, {3});
  EXPECT_TRUE(names(error_text([&] {
                      cross_entropy(Tensor({2, 5}), targets);
                    }),
                    "cross_entropy", "3 targets", "(2, 5)"));
  EXPECT_TRUE(names(error_text([&] {
                      head_cross_entropy(Tensor({3, 5}), Tensor({7, 4}), targets);
                    }),
                    "head_cross_entropy", "(3, 5)", "(7, 4)", "3 targets"));
}

}  // namespace
}  // namespace zeepo
