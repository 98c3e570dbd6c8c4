#include "zeepo/infer/generator.h"

#include <cmath>
#include <limits>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;

GenerateOptions greedily(std::size_t tokens) {
  return {.max_new_tokens = static_cast<std::int64_t>(tokens), .sampling = {}, .stop = {}};
}

// A golden model ready to generate.
class Loaded {
 public:
  explicit Loaded(const Golden& golden, DType dtype = DType::f32, float dropout = 0)
      : session_({.threads = 2, .device_bytes = 1 << 27}),
        model(make_model(with_dropout(golden.config, dropout))),
        engine(*model, session_.communicator(), {.use = Use::infer, .dtype = dtype}),
        dtype_(dtype) {
    const WeightFiles files(golden.directory);
    engine.load(stored_weights(golden.config, engine.slices(), files));
  }
  Generation continue_from(const Ids& prompt, const GenerateOptions& options) {
    return generate(engine, *model, dtype_, prompt, options, [](std::int32_t) {});
  }

 private:
  Session session_;

 public:
  std::unique_ptr<LanguageModel> model;
  ModelEngine engine;

 private:
  DType dtype_;
};

class Generate : public ::testing::TestWithParam<std::string> {
 protected:
  const Golden golden_ = load_golden(GetParam());
  const Ids prompt_ = golden_.values.at("prompt").get<Ids>();
};
INSTANTIATE_TEST_SUITE_P(Models, Generate, ::testing::ValuesIn(golden_names()), golden_test_name);

TEST_P(Generate, GreedyContinuationIsThatOfPyTorch) {
  Loaded loaded(golden_);
  const auto expected = golden_.values.at("greedy").get<Ids>();
  EXPECT_EQ(loaded.continue_from(prompt_, greedily(expected.size())).ids, expected);
}

TEST_P(Generate, DropoutHasNoPartInIt) {
  Loaded loaded(golden_, DType::f32, 0.5f);
  const auto expected = golden_.values.at("greedy").get<Ids>();
  EXPECT_EQ(loaded.continue_from(prompt_, greedily(expected.size())).ids, expected);
}

TEST_P(Generate, APromptInSeveralPassesIsThatInOne) {
  GenerateOptions options = greedily(golden_.values.at("greedy").size());
  Loaded loaded(golden_);
  for (const std::int64_t tokens : {1, 3, 5, static_cast<int>(prompt_.size())}) {
    options.prefill_tokens = tokens;
    EXPECT_EQ(loaded.continue_from(prompt_, options).ids, golden_.values.at("greedy").get<Ids>()) << tokens;
  }
}

// Sampled at a high temperature, so that the text wanders past every window.
TEST_P(Generate, TheCacheGivesWhatTheWholePrefixGives) {
  Loaded loaded(golden_);
  const TapeScope none(nullptr);
  const GenerateOptions options{.max_new_tokens = 30, .sampling = {.temperature = 1.5f, .seed = 3}, .stop = {}};
  const auto generated = loaded.continue_from(prompt_, options).ids;
  ASSERT_EQ(generated.size(), 30u);
  Ids prefix = prompt_;
  for (std::size_t i = 0; i < generated.size(); ++i) {
    const auto all = prompt_logits(loaded.engine, *loaded.model, prefix);
    const auto vocab = static_cast<std::size_t>(golden_.config.vocab);
    const std::span<const float> last(all.data() + all.size() - vocab, vocab);
    ASSERT_EQ(choose_token(last, options.sampling, i), generated[i]) << "token " << i;
    prefix.push_back(generated[i]);
  }
}

TEST_P(Generate, CachedLogitsAreThoseOfTheWholePrefix) {
  Loaded loaded(golden_);
  const TapeScope none(nullptr);
  Ids ids = prompt_;
  for (const auto id : golden_.values.at("greedy").get<Ids>()) ids.push_back(id);
  const auto whole = prompt_logits(loaded.engine, *loaded.model, ids);
  const auto vocab = static_cast<std::size_t>(golden_.config.vocab);
  KvCache cache(golden_.config, 1, static_cast<std::int64_t>(ids.size()), DType::f32);
  std::vector<float> pieces;
  for (std::size_t begin = 0, count = 5; begin < ids.size(); begin += count, count = begin % 3 + 1) {
    count = std::min(count, ids.size() - begin);
    const Tensor part =
        Tensor::from<std::int32_t>(std::span(ids).subspan(begin, count), {1, static_cast<std::int64_t>(count)});
    std::vector<float> logits;
    loaded.engine.infer([&] { logits = loaded.model->logits(part, &cache).to_floats(); });
    pieces.insert(pieces.end(), logits.begin(), logits.end());
  }
  ASSERT_EQ(pieces.size(), ids.size() * vocab);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    ASSERT_NEAR(pieces[i], whole[i], 1e-5 * (1 + std::abs(whole[i]))) << "position " << i / vocab;
}

TEST(Generator, SixteenBitsGenerateToo) {
  const Golden golden = load_golden("golden/gpt2-tiny");  // its margins are wide
  for (const DType dtype : {DType::bf16, DType::f16}) {
    Loaded loaded(golden, dtype);
    const auto expected = golden.values.at("greedy").get<Ids>();
    EXPECT_EQ(loaded.continue_from(golden.values.at("prompt").get<Ids>(), greedily(24)).ids, expected)
        << name_of(dtype);
  }
}

// The copy that drafts is coarse: what it cannot choose from is no fault of the weights.
TEST(Generator, ADraftThatIsNoNumberEndsTheDraftAndNotTheText) {
  const Golden golden = load_golden("golden/llama-tiny");
  Session::Options tiers{.threads = 1, .device_bytes = 1 << 27};
  tiers.lower.host_bytes = 1 << 27;
  Session session(tiers);
  const auto model = make_model(golden.config);
  EngineOptions streamed{.use = Use::infer};
  streamed.placement.params.host = 1;
  ModelEngine engine(*model, session.communicator(), streamed);
  engine.keep_draft(CodedType::int4, Place::device);
  const WeightFiles files(golden.directory);
  const WeightSource stored = stored_weights(golden.config, engine.slices(), files);
  engine.load(stored);
  engine.load_draft([&](const WeightSlice& slice, std::int64_t first, std::span<float> values) {
    stored(slice, first, values);
    if (!values.empty()) values[0] = std::numeric_limits<float>::quiet_NaN();
  });
  GenerateOptions options = greedily(golden.values.at("greedy").size());
  options.draft_tokens = 4;
  const auto made =
      generate(engine, *model, DType::f32, golden.values.at("prompt").get<Ids>(), options, [](std::int32_t) {});
  EXPECT_EQ(made.ids, golden.values.at("greedy").get<Ids>());
  EXPECT_EQ(made.drafted, 0);
}

TEST(Generator, TheSameSeedGivesTheSameText) {
  const Golden golden = load_golden("golden/llama-tiny");
  Loaded loaded(golden);
  const auto with_seed = [&](std::uint64_t seed) {
    return loaded
        .continue_from({1, 2, 3},
                       {.max_new_tokens = 40, .sampling = {.temperature = 1, .top_k = 50, .seed = seed}, .stop = {}})
        .ids;
  };
  EXPECT_EQ(with_seed(1), with_seed(1));
  EXPECT_NE(with_seed(1), with_seed(2));
}

TEST(Generator, StopsAfterAStopTokenAndShowsEachTokenAtOnce) {
  const Golden golden = load_golden("golden/gpt2-tiny");
  Loaded loaded(golden);
  const auto greedy = golden.values.at("greedy").get<Ids>();
  Ids seen;
  const auto result = generate(loaded.engine, *loaded.model, DType::f32, golden.values.at("prompt").get<Ids>(),
                               {.max_new_tokens = 24, .sampling = {}, .stop = {9, greedy[1]}},
                               [&](std::int32_t t) { seen.push_back(t); });
  EXPECT_EQ(result.ids, (Ids{greedy[0], greedy[1]}));
  EXPECT_EQ(seen, result.ids);
  EXPECT_TRUE(loaded.continue_from({1}, greedily(0)).ids.empty());
}

TEST(Generator, PromptsThatDoNotFitAreErrors) {
  const ModelConfig config = load_golden("golden/gpt2-tiny").config;
  EXPECT_TRUE(names(error_text([&] { check_prompt(config, {}, 1); }), "generate", "empty"));
  EXPECT_TRUE(names(error_text([&] { check_prompt(config, Ids{1, 256}, 1); }), "token 1", "256", "256 entries"));
  EXPECT_TRUE(names(error_text([&] { check_prompt(config, Ids{-1}, 1); }), "token 0", "-1"));
  EXPECT_TRUE(names(error_text([&] {
                      check_prompt(config, Ids{1, 2}, 127);
                    }),
                    "2 prompt tokens", "127 new", "128 positions"));
  check_prompt(config, Ids{1, 2}, 126);
}

TEST(Generator, AllPositionsOfTheModelCanBeFilled) {
  Loaded loaded(load_golden("golden/gpt2-tiny"));
  EXPECT_EQ(loaded.continue_from({1, 2}, greedily(126)).ids.size(), 126u);
}

}  // namespace
}  // namespace zeepo
