#include "zeepo/model/llama.h"

#include <gtest/gtest.h>

#include "tests/support/hand_loaded.h"
#include "tests/support/test_data.h"

namespace zeepo {
namespace {

std::vector<float> logits_with(const ModelConfig& config, const std::string& weights,
                               const std::vector<std::int32_t>& ids) {
  Llama model(config);
  const WeightFiles files(golden(weights));
  load_by_hand(model, stored_weights(config, slices_of(model), files));
  return logits_of(model, ids);
}

TEST(Llama, AWindowHidesWhatIsFurtherBack) {
  TestDevice device;
  ModelConfig config = load_config(golden("llama-tiny"));
  config.windows.assign(static_cast<std::size_t>(config.layers), 3);
  std::vector<std::int32_t> ids{9, 8, 7, 6, 5, 4, 3, 2, 1}, other = ids;
  other[0] = 100;
  const auto a = logits_with(config, "llama-tiny", ids), b = logits_with(config, "llama-tiny", other);
  const std::size_t vocab = a.size() / ids.size();
  // Two layers with a window of 3 reach 4 positions back: position 5 and later cannot see the first token.
  const auto same = [&](std::size_t row) {
    return std::equal(a.begin() + static_cast<std::ptrdiff_t>(row * vocab),
                      a.begin() + static_cast<std::ptrdiff_t>((row + 1) * vocab),
                      b.begin() + static_cast<std::ptrdiff_t>(row * vocab));
  };
  for (const std::size_t row : {0, 1, 2, 3, 4}) EXPECT_FALSE(same(row)) << row;
  for (const std::size_t row : {5, 6, 7, 8}) EXPECT_TRUE(same(row)) << row;
}

TEST(Llama, RotaryScalingReachesTheAttention) {
  TestDevice device;
  const ModelConfig config = load_config(golden("llama-tiny"));
  const auto plain = logits_with(config, "llama-tiny", {1, 2, 3, 4, 5, 6});
  ModelConfig linear = config;
  linear.rope.scaling = RopeConfig::Scaling::linear;
  linear.rope.factor = 4;
  const auto scaled = logits_with(linear, "llama-tiny", {1, 2, 3, 4, 5, 6});
  const std::size_t vocab = plain.size() / 6;
  EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + static_cast<std::ptrdiff_t>(vocab), scaled.begin()));
  EXPECT_NE(plain, scaled);
}

TEST(Llama, FusedProjectionsAreNamedAsFilesNameThem) {
  const Llama model(load_config(golden("qwen2-tiny")));
  std::vector<std::string> names;
  for (const auto& slice : slices_of(model))
    if (slice.name.starts_with("model.layers.0.self_attn")) names.push_back(slice.name.substr(24));
  EXPECT_EQ(names, (std::vector<std::string>{".q_proj.weight", ".k_proj.weight", ".v_proj.weight", ".q_proj.bias",
                                             ".k_proj.bias", ".v_proj.bias", ".o_proj.weight"}));
}

}  // namespace
}  // namespace zeepo
