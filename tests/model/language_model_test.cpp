#include "zeepo/model/language_model.h"

#include <cmath>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/hand_loaded.h"
#include "tests/support/test_data.h"

namespace zeepo {
namespace {

const std::vector<std::string> kModels{"gpt2-tiny",    "llama-tiny", "llama-old-spelling",
                                       "mistral-tiny", "qwen2-tiny", "qwen3-tiny"};

std::set<std::string> names_of(const Module& model) {
  std::set<std::string> names;
  for (const auto& slice : slices_of(model)) names.insert(slice.name);
  return names;
}

TEST(LanguageModel, HasTheWeightsThatTransformersSaves) {
  for (const auto& name : kModels) {
    const auto model = make_model(load_config(golden(name)));
    const auto stored = WeightFiles(golden(name)).names();
    EXPECT_EQ(names_of(*model), std::set<std::string>(stored.begin(), stored.end())) << name;
  }
}

TEST(LanguageModel, MarksItsUnitsAndTheBlocksThatCanBeComputedAgain) {
  for (const auto& name : kModels) {
    const auto config = load_config(golden(name));
    const auto model = make_model(config);
    int units = 0, checkpointable = 0;
    for_each_module(*model, [&](Module& module) {
      units += module.is_unit();
      checkpointable += module.is_checkpointable();
    });
    EXPECT_EQ(units, config.layers + 2) << name;
    EXPECT_EQ(checkpointable, config.layers) << name;
  }
}

TEST(LanguageModel, TheLastPositionAloneIsTheLastOfAll) {
  TestDevice device;
  for (const auto& name : kModels) {
    const auto model = model_from(golden(name));
    const Tensor ids = int_tensor({5, 6, 7, 8, 9, 10}, {2, 3});
    const auto all = model->logits(ids), last = model->logits(ids, nullptr, LanguageModel::Positions::last);
    const std::int64_t vocab = model->config().vocab;
    ASSERT_EQ(all.shape(), (Shape{2, 3, vocab}));
    ASSERT_EQ(last.shape(), (Shape{2, 1, vocab}));
    const auto values = all.to_floats(), picked = last.to_floats();
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t i = 0; i < static_cast<std::size_t>(vocab); ++i)
        EXPECT_NEAR(picked[b * static_cast<std::size_t>(vocab) + i],
                    values[(b * 3 + 2) * static_cast<std::size_t>(vocab) + i], 1e-5);
  }
}

TEST(LanguageModel, TheLossIsTheCrossEntropyOfItsLogits) {
  TestDevice device;
  for (const auto& name : kModels) {
    const auto model = model_from(golden(name));
    const std::vector<std::int32_t> ids{5, 6, 7, 8}, targets{6, 7, 8, 200};
    const auto logits = logits_of(*model, ids);
    double expected = 0;
    const std::size_t vocab = logits.size() / ids.size();
    for (std::size_t t = 0; t < ids.size(); ++t) {
      double total = 0;
      for (std::size_t i = 0; i < vocab; ++i) total += std::exp(static_cast<double>(logits[t * vocab + i]));
      expected += (std::log(total) - logits[t * vocab + static_cast<std::size_t>(targets[t])]) / 4;
    }
    EXPECT_NEAR(model->loss(int_tensor(ids, {1, 4}), int_tensor(targets, {1, 4})).item(), expected, 1e-5) << name;
  }
}

TEST(LanguageModel, RowsOfABatchDoNotSeeEachOtherAndNoneSeesTheFuture) {
  TestDevice device;
  for (const auto& name : kModels) {
    const auto model = model_from(golden(name));
    const auto vocab = static_cast<std::size_t>(model->config().vocab);
    const auto first = model->logits(int_tensor({5, 6, 7, 8, 9, 10}, {2, 3})).to_floats();
    const auto second = model->logits(int_tensor({5, 6, 99, 8, 100, 10}, {2, 3})).to_floats();
    const auto same = [&](std::size_t row) {
      for (std::size_t i = 0; i < vocab; ++i)
        if (first[row * vocab + i] != second[row * vocab + i]) return false;
      return true;
    };
    for (const std::size_t row : {0, 1, 3}) EXPECT_TRUE(same(row)) << name << " " << row;
    for (const std::size_t row : {2, 4, 5}) EXPECT_FALSE(same(row)) << name << " " << row;
  }
}

TEST(LanguageModel, IdsOfAnotherShapeAreAnError) {
  TestDevice device;
  const auto model = model_from(golden("gpt2-tiny"));
  EXPECT_TRUE(names(error_text([&] { model->logits(int_tensor({1, 2}, {2})); }), "(2)"));
  EXPECT_TRUE(names(error_text([&] { model->logits(random_tensor({1, 2}, 1)); }), "must be int32"));
}

TEST(RandomWeights, DependOnSeedAndNameAlone) {
  const auto model = make_model(load_config(golden("llama-tiny")));
  const auto slices = slices_of(*model);
  const WeightSource source = random_weights(5), other = random_weights(6);
  for (const auto& slice : slices) {
    std::vector<float> whole(static_cast<std::size_t>(slice.shape.elements())), part(8), another(8);
    source(slice, 0, whole);
    source(slice, 8, part);
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 8)) << slice.name;
    other(slice, 8, another);
    const bool constant = slice.name.find("norm") != std::string::npos;
    EXPECT_EQ(part == another, constant) << slice.name;
    if (constant) {
      EXPECT_EQ(whole, std::vector<float>(whole.size(), 1));
      continue;
    }
    double mean = 0, square = 0;
    for (const float value : whole) mean += value, square += static_cast<double>(value) * value;
    mean /= static_cast<double>(whole.size());
    square /= static_cast<double>(whole.size());
    EXPECT_NEAR(mean, 0, 0.02) << slice.name;
    EXPECT_NEAR(std::sqrt(square), 0.12, 0.02) << slice.name;  // initializer_range
  }
}

}  // namespace
}  // namespace zeepo
