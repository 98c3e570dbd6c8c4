#include "zeepo/ops/attention.h"

#include <cmath>

#include "tests/support/errors.h"
#include "tests/support/gradient_check.h"
#include "zeepo/autograd/random_state.h"
#include "zeepo/ops/add.h"

namespace zeepo {
namespace {

constexpr HeadLayout kGrouped{4, 2, 6};

struct Rotation {
  Tensor cosines, sines;
};

Rotation rotation(std::int64_t positions, std::int64_t half) {
  std::vector<float> cosines, sines;
  for (std::int64_t t = 0; t < positions; ++t)
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * std::pow(0.3, static_cast<double>(i));
      cosines.push_back(static_cast<float>(std::cos(angle)));
      sines.push_back(static_cast<float>(std::sin(angle)));
    }
  return {Tensor::from<float>(cosines, {positions, half}), Tensor::from<float>(sines, {positions, half})};
}

// A copy that takes part in the backward pass, for ops that work in place.
Tensor copied(const Tensor& x) {
  return add(x, Tensor::from<float>(std::vector<float>(static_cast<std::size_t>(x.elements())), x.shape()));
}

TEST(Attention, GradientsAgreeWithGroupedHeads) {
  TestDevice device;
  expect_gradients({random_input("qkv", {2, 5, kGrouped.width()}, 1)},
                   [](auto in) { return attention(in[0], kGrouped, {.scale = 0.4f}); });
}

TEST(Attention, GradientsAgreeWithAWindow) {
  TestDevice device;
  constexpr HeadLayout layout{2, 2, 4};
  for (const std::int64_t window : {1, 3})
    expect_gradients({random_input("qkv", {1, 7, layout.width()}, 2)},
                     [&](auto in) { return attention(in[0], layout, {.scale = 0.5f, .window = window}); });
}

TEST(Attention, GradientsAgreeUnderDropout) {
  TestDevice device;
  constexpr HeadLayout layout{2, 1, 4};
  const auto dropped = [&](std::span<const Tensor> in) {
    RandomState::current() = {.key = {17}, .next = 0, .training = true};
    Tensor y = attention(in[0], layout, {.scale = 0.5f, .dropout = 0.4f});
    RandomState::current() = {};
    return y;
  };
  expect_gradients({random_input("qkv", {2, 6, layout.width()}, 3)}, dropped);
  const Tensor qkv = random_tensor({2, 6, layout.width()}, 3);
  EXPECT_NE(dropped({&qkv, 1}).to_floats(), attention(qkv, layout, {.scale = 0.5f}).to_floats());
}

TEST(Attention, DropsNothingOutsideOfTraining) {
  TestDevice device;
  const Tensor qkv = random_tensor({1, 6, kGrouped.width()}, 3);
  const auto expected = attention(qkv, kGrouped, {.scale = 0.5f}).to_floats();
  EXPECT_EQ(attention(qkv, kGrouped, {.scale = 0.5f, .dropout = 0.4f}).to_floats(), expected);
  LayerCache cache{Tensor({1, 6, 12}), Tensor({1, 6, 12})};
  const auto cached = attention(qkv, kGrouped, {.scale = 0.5f, .dropout = 0.4f}, cache).to_floats();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(cached[i], expected[i], 1e-6) << i;
}

TEST(Attention, ACacheGivesWhatTheWholeSequenceGives) {
  TestDevice device;
  for (const std::int64_t window : {0, 3}) {
    const AttentionOptions options{.scale = 0.4f, .window = window};
    const std::int64_t width = kGrouped.width(), out = kGrouped.heads * kGrouped.head_dim;
    const Tensor qkv = random_tensor({1, 9, width}, 4);
    const auto whole = attention(qkv, kGrouped, options).to_floats();
    LayerCache cache{Tensor({1, 9, 12}), Tensor({1, 9, 12})};
    std::vector<float> pieces;
    for (const auto& [begin, count] :
         std::vector<std::pair<std::int64_t, std::int64_t>>{{0, 4}, {4, 1}, {5, 1}, {6, 3}}) {
      const auto part = attention(qkv.part(begin * width, {1, count, width}), kGrouped, options, cache).to_floats();
      pieces.insert(pieces.end(), part.begin(), part.end());
    }
    ASSERT_EQ(pieces.size(), whole.size());
    ASSERT_EQ(static_cast<std::int64_t>(whole.size()), 9 * out);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(pieces[i], whole[i], 2e-6) << i << ", window " << window;
  }
}

// Each position's keys and values are coded by themselves, so that no cut of the sequence changes a bit.
TEST(Attention, ACodedCacheIsNearAndDoesNotDependOnTheCut) {
  TestDevice device;
  const AttentionOptions options{.scale = 0.4f};
  const HeadLayout layout{4, 2, 8};
  const std::int64_t width = layout.width(), cached = cached_width(layout.kv_heads, layout.head_dim, DType::u8);
  EXPECT_EQ(cached, 2 * (8 + 2));
  const Tensor qkv = random_tensor({1, 9, width}, 4);
  const auto exact = attention(qkv, layout, options).to_floats();
  const auto in_pieces = [&](const std::vector<std::int64_t>& counts) {
    LayerCache cache{Tensor({1, 9, cached}, DType::u8), Tensor({1, 9, cached}, DType::u8)};
    std::vector<float> all;
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      const auto part = attention(qkv.part(begin * width, {1, count, width}), layout, options, cache).to_floats();
      all.insert(all.end(), part.begin(), part.end());
      begin += count;
    }
    return all;
  };
  const auto whole = in_pieces({9});
  EXPECT_EQ(in_pieces({4, 1, 1, 3}), whole);
  EXPECT_NE(whole, exact);
  for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(whole[i], exact[i], 0.05) << i;
  EXPECT_TRUE(names(error_text([] { (void)cached_width(1, 3, DType::u8); }), "3 values", "even"));
}

TEST(Rotary, GradientsAgreeWithDifferences) {
  TestDevice device;
  const auto [cosines, sines] = rotation(9, 3);
  expect_gradients({random_input("qkv", {2, 4, kGrouped.width()}, 5)},
                   [&, c = cosines, s = sines](auto in) { return rotary(copied(in[0]), kGrouped, c, s, 2); });
}

TEST(Rotary, LeavesTheValuesAloneAndTurnsByPosition) {
  TestDevice device;
  const auto [cosines, sines] = rotation(4, 3);
  constexpr HeadLayout layout{1, 1, 6};
  const Tensor before = random_tensor({1, 4, 18}, 6);
  const auto from = before.to_floats();
  const auto to = rotary(copied(before), layout, cosines, sines, 0).to_floats();
  const auto c = cosines.to_floats(), s = sines.to_floats();
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t i = 0; i < 3; ++i)
      for (const std::size_t head : {0, 1}) {
        const std::size_t at = t * 18 + head * 6 + i, angle = t * 3 + i;
        EXPECT_NEAR(to[at], from[at] * c[angle] - from[at + 3] * s[angle], 1e-6);
        EXPECT_NEAR(to[at + 3], from[at + 3] * c[angle] + from[at] * s[angle], 1e-6);
      }
    for (std::size_t i = 12; i < 18; ++i) EXPECT_EQ(to[t * 18 + i], from[t * 18 + i]);
  }
}

TEST(QkNorm, GradientsAgreeWithDifferences) {
  TestDevice device;
  expect_gradients({random_input("qkv", {2, 3, kGrouped.width()}, 7), random_input("query weight", {6}, 8, 0.3f, 1),
                    random_input("key weight", {6}, 9, 0.3f, 1)},
                   [](auto in) { return qk_norm(in[0], kGrouped, in[1], in[2], 1e-5f); });
}

TEST(QkNorm, GradientsAgreeThroughRotationAndAttention) {
  TestDevice device;
  const auto [cosines, sines] = rotation(5, 3);
  expect_gradients({random_input("qkv", {1, 5, kGrouped.width()}, 7), random_input("query weight", {6}, 8, 0.3f, 1),
                    random_input("key weight", {6}, 9, 0.3f, 1)},
                   [&, c = cosines, s = sines](auto in) {
                     const Tensor normed = qk_norm(in[0], kGrouped, in[1], in[2], 1e-5f);
                     return attention(rotary(normed, kGrouped, c, s, 0), kGrouped, {.scale = 0.4f});
                   });
}

TEST(Attention, ErrorsNameTheShapes) {
  TestDevice device;
  EXPECT_TRUE(names(error_text([] {
                      attention(Tensor({1, 2, 10}), kGrouped, {});
                    }),
                    "attention", "(1, 2, 10)", "4 query", "2 x 2 key", "of 6"));
  const auto [cosines, sines] = rotation(3, 3);
  EXPECT_TRUE(names(error_text([&, c = cosines, s = sines] {
                      rotary(Tensor({1, 2, kGrouped.width()}), kGrouped, c, s, 2);
                    }),
                    "rotary", "position 3", "3"));
  LayerCache cache{Tensor({1, 2, 12}), Tensor({1, 2, 12})};
  EXPECT_TRUE(names(error_text([&] {
                      attention(random_tensor({1, 3, kGrouped.width()}, 1), kGrouped, {}, cache);
                    }),
                    "3 positions", "(1, 2, 12)"));
}

}  // namespace
}  // namespace zeepo
