#include "zeepo/model/gpt2.h"

#include <cmath>

#include "tests/support/errors.h"
#include "tests/support/hand_loaded.h"
#include "tests/support/test_data.h"
#include "zeepo/autograd/random_state.h"

namespace zeepo {
namespace {

TEST(Gpt2, MorePositionsThanItHasAreAnError) {
  TestDevice device;
  const auto model = model_from(golden("gpt2-tiny"));
  const auto text = error_text([&] { logits_of(*model, std::vector<std::int32_t>(129, 1)); });
  EXPECT_TRUE(names(text, "129 positions"));
  EXPECT_TRUE(names(text, "128"));
  KvCache cache(model->config(), 1, 200, DType::f32);
  model->logits(int_tensor(std::vector<std::int32_t>(127, 1), {1, 127}), &cache);
  model->logits(int_tensor({1}, {1, 1}), &cache);
  EXPECT_EQ(cache.length(), 128);
  EXPECT_TRUE(names(error_text([&] { model->logits(int_tensor({1}, {1, 1}), &cache); }), "129 positions"));
}

TEST(Gpt2, ProjectionsToTheResidualStreamStartSmaller) {
  const auto config = load_config(golden("gpt2-tiny"));
  const Gpt2 model(config);
  for (const auto& slice : slices_of(model)) {
    if (!slice.name.ends_with("c_proj.weight")) continue;
    EXPECT_FLOAT_EQ(slice.init.scale, 0.12f / std::sqrt(4.0f)) << slice.name;
  }
}

TEST(Gpt2, DropoutChangesTheLossInTrainingAlone) {
  TestDevice device;
  ModelConfig config = load_config(golden("gpt2-tiny"));
  const auto plain = model_from(golden("gpt2-tiny"));
  const Tensor ids = int_tensor({1, 2, 3, 4}, {1, 4}), targets = int_tensor({2, 3, 4, 5}, {1, 4});
  const float expected = plain->loss(ids, targets).item();
  for (float ModelConfig::*which :
       {&ModelConfig::embed_dropout, &ModelConfig::residual_dropout, &ModelConfig::attention_dropout}) {
    ModelConfig dropping = config;
    dropping.*which = 0.5f;
    Gpt2 model(dropping);
    const WeightFiles files(golden("gpt2-tiny"));
    load_by_hand(model, stored_weights(config, slices_of(model), files));
    EXPECT_EQ(model.loss(ids, targets).item(), expected);
    RandomState::current() = {.key = {1}, .next = 0, .training = true};
    EXPECT_NE(model.loss(ids, targets).item(), expected);
    RandomState::current() = {};
  }
}

}  // namespace
}  // namespace zeepo
