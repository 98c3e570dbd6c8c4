// Sequences of unequal length together: each gets the tokens and, on a CPU, the logits of itself alone, wherever the
// weights live and over how many ranks they are cut.
#include "zeepo/infer/batch_generator.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/test_directory.h"
#include "tests/support/written_model.h"
#include "zeepo/base/rng.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/infer/inference.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;

struct Asked {
  Ids prompt;
  std::int64_t new_tokens;
};

// Tokens with their likelihoods, which tell of the logits' bits.
struct Text {
  Ids ids;
  std::vector<float> likelihoods;
  friend bool operator==(const Text&, const Text&) = default;
};

// On rank 0 the texts; on others nothing.
std::vector<Text> together(const InferenceOptions& options, const std::vector<Asked>& asked, BatchLimits limits,
                           Communicator& communicator = alone()) {
  limits.kv = options.kv;
  Inference inference(options, communicator, [&](ModelEngine& engine, LanguageModel& model) {
    rehearse(engine, model, kv_dtype(options), limits);
  });
  std::vector<Text> texts(asked.size());
  {
    BatchPass pass(inference.engine(), inference.model(), kv_dtype(options), limits);
    if (communicator.rank() != 0) {
      pass.follow();
      inference.engine().settle();
      return {};
    }
    BatchGenerator batch(pass, inference.model().config(), limits);
    std::size_t ended = 0;
    for (std::size_t i = 0; i < asked.size(); ++i) {
      TextRequest request;
      request.prompt = asked[i].prompt;
      request.options.max_new_tokens = asked[i].new_tokens;
      request.likelihoods = 0;
      request.on_token = [&texts, i](const NewToken& made) {
        texts[i].ids.push_back(made.token);
        texts[i].likelihoods.push_back(made.log_probability);
        return true;
      };
      request.on_end = [&ended](TextEnd why, const std::string& failure) {
        EXPECT_EQ(why, TextEnd::length);
        EXPECT_EQ(failure, "");
        ++ended;
      };
      batch.add(std::move(request));
    }
    while (batch.step()) {
    }
    batch.finish();
    inference.engine().settle();
    EXPECT_EQ(ended, asked.size());
    EXPECT_EQ(batch.scheduler().pool().free_pages(), limits.pages);
    EXPECT_EQ(batch.drafted().tokens > 0, options.drafts == Drafts::wanted);
    EXPECT_LE(batch.drafted().accepted, batch.drafted().tokens);
  }
  for (const Place place : kPlaces)
    EXPECT_LE(static_cast<std::int64_t>(inference.session().peak(place).total),
              inference.plan().memory.bytes[static_cast<std::size_t>(place)]);
  return texts;
}

class Batched : public ::testing::TestWithParam<std::string> {
 protected:
  InferenceOptions options() const {
    InferenceOptions options;
    options.command = "generate";
    options.model = golden_.directory;
    options.threads = 2;
    options.device_bytes = 1 << 25;
    options.host_bytes = 1 << 25;
    options.nvme_paths = {files_.path()};
    return options;
  }

  std::vector<Asked> unequal() const {
    std::vector<Asked> asked;
    for (std::int64_t i = 0; i < 9; ++i) {
      Ids prompt;
      for (std::int64_t t = 0; t < 1 + i * 7 % 23; ++t)
        prompt.push_back(static_cast<std::int32_t>((i * 31 + t * 17 + 3) % golden_.config.vocab));
      asked.push_back({prompt, 1 + i * 5 % 8});
    }
    asked.push_back({golden_.values.at("prompt").get<Ids>(), 12});
    return asked;
  }

  std::vector<Text> one_by_one(const std::vector<Asked>& asked) const { return one_by_one(options(), asked); }
  static std::vector<Text> one_by_one(const InferenceOptions& options, const std::vector<Asked>& asked) {
    std::vector<Text> texts;
    const BatchLimits limits{.sequences = 1, .prefill_tokens = 1000, .page_rows = 64, .pages = 2};
    for (const Asked& one : asked) texts.push_back(together(options, {one}, limits)[0]);
    return texts;
  }

  // Few pages of few rows: sequences wait, prompts are cut, and pages are scattered after a while.
  static BatchLimits tight() { return {.sequences = 4, .prefill_tokens = 6, .page_rows = 4, .pages = 19}; }

  const Golden golden_ = load_golden(GetParam());
  const TestDirectory files_;
};
INSTANTIATE_TEST_SUITE_P(Models, Batched, ::testing::ValuesIn(golden_names()), golden_test_name);

TEST_P(Batched, ASequenceAloneContinuesAsGenerateDoes) {
  const Ids prompt = golden_.values.at("prompt").get<Ids>(), expected = golden_.values.at("greedy").get<Ids>();
  const auto texts = one_by_one({{prompt, static_cast<std::int64_t>(expected.size())}});
  EXPECT_EQ(texts[0].ids, expected);
  InferenceOptions alone_options = options();
  std::vector<float> logits;
  Inference inference(alone_options, alone(), [&](ModelEngine& engine, LanguageModel& model) {
    logits = prompt_logits(engine, model, prompt);
  });
  logits = prompt_logits(inference.engine(), inference.model(), prompt);
  const auto vocab = static_cast<std::size_t>(golden_.config.vocab);
  EXPECT_EQ(texts[0].likelihoods[0], log_probability(std::span(logits).last(vocab), expected[0]));
}

TEST_P(Batched, CompanyChangesNothingWhereverTheWeightsLive) {
  const std::vector<Asked> asked = unequal();
  const auto expected = one_by_one(asked);
  std::vector<InferenceOptions> places(6, options());
  places[1].params.host = 1;
  places[2].params.nvme = 1;
  places[3].params = {0.4, 0.3};
  places[3].prefetch_bytes = 1 << 14;
  places[4].kv = Place::host;
  places[5].kv = Place::host;
  places[5].params.host = 1;
  for (const InferenceOptions& place : places) {
    EXPECT_EQ(together(place, asked, tight()), expected) << placement_flags(place);
    EXPECT_EQ(together(place, asked, {.sequences = 16, .prefill_tokens = 512, .page_rows = 32, .pages = 16}), expected)
        << placement_flags(place);
  }
}

// A draft changes when tokens come: no token, and no bit of a likelihood.
TEST_P(Batched, DraftsChangeNothing) {
  const std::vector<Asked> asked = unequal();
  const auto expected = one_by_one(asked);
  std::vector<InferenceOptions> places(4, options());
  places[1].params.host = 1;
  places[2].params.nvme = 1;
  places[2].draft_place = Place::host;
  places[3].params.host = 0.5;
  places[3].kv = Place::host;
  BatchLimits few = tight(), many{.sequences = 16, .prefill_tokens = 512, .page_rows = 32, .pages = 16};
  few.draft_tokens = 4;
  many.draft_tokens = 3;
  many.drafted_at_once = 20;  // not three for each
  for (InferenceOptions& place : places) {
    place.drafts = Drafts::wanted;
    for (const BatchLimits& limits : {few, many})
      EXPECT_EQ(together(place, asked, limits), expected) << placement_flags(place);
  }
  ThreadsWorld world(3);
  run(world, [&](Communicator& communicator) {
    InferenceOptions sharded = options();
    sharded.threads = 1;
    sharded.params.host = 1;
    sharded.drafts = Drafts::wanted;
    const auto texts = together(sharded, asked, few, communicator);
    EXPECT_EQ(texts, communicator.rank() == 0 ? expected : std::vector<Text>());
  });
}

TEST_P(Batched, ACacheInHostMemoryLeavesTheDeviceToOthers) {
  const BatchLimits limits{.sequences = 4, .prefill_tokens = 8, .page_rows = 16, .pages = 200};
  const auto plan = [&](Place kv) {
    InferenceOptions asked = options();
    asked.kv = kv;
    BatchLimits planned = limits;
    planned.kv = kv;
    return Inference(
               asked, alone(),
               [&](ModelEngine& engine, LanguageModel& model) { rehearse(engine, model, kv_dtype(asked), planned); })
        .plan()
        .memory.bytes;
  };
  const PlaceBytes resident = plan(Place::device), offloaded = plan(Place::host);
  const ModelConfig& config = golden_.config;
  const auto pool = static_cast<std::int64_t>(sizeof(float)) * 2 * config.layers * limits.positions() *
                    config.kv_heads * config.head_dim;
  EXPECT_GE(offloaded[1], resident[1] + pool);
  EXPECT_LT(offloaded[0], resident[0]);
}

TEST_P(Batched, TheRanksFollowTheFirst) {
  const std::vector<Asked> asked = unequal();
  const auto expected = one_by_one(asked);
  for (const int ranks : {2, 3}) {
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) {
      InferenceOptions sharded = options();
      sharded.threads = 1;
      sharded.params.host = ranks == 3 ? 1 : 0;
      const auto texts = together(sharded, asked, tight(), communicator);
      EXPECT_EQ(texts, communicator.rank() == 0 ? expected : std::vector<Text>());
    });
  }
}

// Codes of keys and values are made of one position at a time: company, cuts and places have no part in them.
TEST_P(Batched, ACodedCacheAnswersAlikeWhereverItLives) {
  const std::vector<Asked> asked = unequal();
  InferenceOptions coded = options();
  coded.kv_int8 = true;
  const auto expected = one_by_one(coded, asked);
  EXPECT_NE(expected, one_by_one(asked)) << "the cache is exact";
  std::vector<InferenceOptions> places(4, coded);
  places[1].kv = Place::host;
  places[2].kv = Place::host;
  places[2].params.nvme = 1;
  places[3].kv = Place::host;
  places[3].params.host = 0.5;
  places[3].drafts = Drafts::wanted;
  BatchLimits few = tight(), many{.sequences = 16, .prefill_tokens = 512, .page_rows = 32, .pages = 16};
  few.draft_tokens = many.draft_tokens = 3;
  for (const InferenceOptions& place : places)
    for (const BatchLimits& limits : {few, many})
      EXPECT_EQ(together(place, asked, limits), expected) << placement_flags(place);
  ThreadsWorld world(3);
  run(world, [&](Communicator& communicator) {
    InferenceOptions sharded = places[3];
    sharded.threads = 1;
    const auto texts = together(sharded, asked, few, communicator);
    EXPECT_EQ(texts, communicator.rank() == 0 ? expected : std::vector<Text>());
  });
}

// A GPU has just as much memory as the plan says.
InferenceOptions with_no_more_than_planned(InferenceOptions options, BatchLimits limits) {
  limits.kv = options.kv;
  options.device_bytes =
      Inference(options, alone(),
                [&](ModelEngine& engine, LanguageModel& model) { rehearse(engine, model, kv_dtype(options), limits); })
          .plan()
          .memory.bytes[0];
  return options;
}

// Passes of all sizes, in any order.
TEST_P(Batched, ThePlanHoldsWhateverComes) {
  std::vector<InferenceOptions> places(5, options());
  for (InferenceOptions& place : places) {
    place.threads = 1;
    place.prefetch_bytes = 1 << 15;
  }
  for (const std::size_t below : {1, 3, 4}) {
    places[below].params.host = 0.6;
    places[below].kv = Place::host;
  }
  for (const std::size_t drafting : {1, 4}) places[drafting].drafts = Drafts::wanted;
  for (const std::size_t coded : {2, 4}) places[coded].kv_int8 = true;
  places[3].weights = CodedType::int8;
  places[4].weights = CodedType::int4;
  for (BatchLimits limits : {tight(), BatchLimits{.sequences = 12, .prefill_tokens = 40, .page_rows = 8, .pages = 40}})
    for (const InferenceOptions& place : places) {
      limits.draft_tokens = place.drafts == Drafts::wanted ? 3 : 0;
      std::vector<Asked> asked;
      std::uint64_t draws = 0;
      const auto draw = [&](std::int64_t most) {
        return 1 + static_cast<std::int64_t>(uniform(RngKey{11}, draws++) * static_cast<float>(most));
      };
      const std::int64_t longest = std::min(golden_.config.max_positions, limits.positions());
      for (int i = 0; i < 120; ++i) {
        const std::int64_t prompt = draw(draw(4) == 1 ? longest - 8 : 12);
        asked.push_back({Ids(static_cast<std::size_t>(prompt), 3), draw(8)});
      }
      EXPECT_EQ(together(with_no_more_than_planned(place, limits), asked, limits).size(), asked.size())
          << placement_flags(place);
    }
}

// 32 texts draft two tokens each, 33 one: most of the memory is for the logits of fewer texts than there may be.
TEST(BatchGenerator, ThePlanHoldsTheMostThatIsDrafted) {
  const TestDirectory directory;
  write_model(directory.path(), {{"model_type", "gpt2"},
                                 {"architectures", {"GPT2LMHeadModel"}},
                                 {"n_embd", 16},
                                 {"n_head", 2},
                                 {"n_layer", 1},
                                 {"n_positions", 16},
                                 {"vocab_size", 4096}});
  InferenceOptions options;
  options.command = "serve";
  options.model = directory.path();
  options.threads = 1;
  options.device_bytes = options.host_bytes = 1 << 25;
  options.params.host = 1;
  options.drafts = Drafts::wanted;
  BatchLimits limits{.sequences = 33, .prefill_tokens = 32, .page_rows = 8, .pages = 40};
  limits.draft_tokens = 2;
  std::vector<Asked> asked;
  for (std::int32_t i = 0; i < 32; ++i) asked.push_back({{i}, 6});
  EXPECT_EQ(together(with_no_more_than_planned(options, limits), asked, limits).size(), asked.size());
}

TEST_P(Batched, OneTextThroughPagesIsThatOfGenerate) {
  const Ids prompt = golden_.values.at("prompt").get<Ids>(), expected = golden_.values.at("greedy").get<Ids>();
  InferenceOptions asked = options();
  asked.kv = Place::host;
  const GenerateOptions how{.max_new_tokens = static_cast<std::int64_t>(expected.size()), .sampling = {}, .stop = {}};
  BatchLimits limits = limits_of_one(prompt.size(), how.max_new_tokens, 7);
  limits.kv = asked.kv;
  Inference inference(asked, alone(), [&](ModelEngine& engine, LanguageModel& model) {
    rehearse(engine, model, kv_dtype(asked), limits);
  });
  BatchPass pass(inference.engine(), inference.model(), kv_dtype(asked), limits);
  Ids told;
  const Generation made =
      generate_in_pages(pass, golden_.config, limits, prompt, how, [&](std::int32_t token) { told.push_back(token); });
  EXPECT_EQ(made.ids, expected);
  EXPECT_EQ(told, expected);
  EXPECT_EQ(made.decode.size(), expected.size() - 1);
  EXPECT_GT(made.last_pass().moved.carried.to_device, 0);
  EXPECT_GT(made.last_pass().moved.carried.to_host, 0);
}

// To the bit, in chunks and beside another text.
TEST_P(Batched, AScoredPromptHasTheLikelihoodsOfItsLogits) {
  const BatchLimits limits = tight();
  Inference inference(options(), alone(), [&](ModelEngine& engine, LanguageModel& model) {
    rehearse(engine, model, kv_dtype(options()), limits);
    (void)prompt_logits(engine, model, Ids(20, 1));
  });
  Ids prompt = golden_.values.at("prompt").get<Ids>();
  prompt.resize(20, 5);
  const auto logits = prompt_logits(inference.engine(), inference.model(), prompt);
  const auto vocab = static_cast<std::size_t>(golden_.config.vocab);
  BatchPass pass(inference.engine(), inference.model(), kv_dtype(options()), limits);
  BatchGenerator batch(pass, golden_.config, limits);
  for (const std::int64_t new_tokens : {3, 0}) {
    TextRequest scored, other;
    scored.prompt = other.prompt = prompt;
    scored.options.max_new_tokens = new_tokens;
    other.options.max_new_tokens = 3;
    scored.likelihoods = other.likelihoods = 2;
    scored.scores_prompt = true;
    std::vector<float> expected, got;
    Ids plain, after;
    for (std::size_t i = 1; i < prompt.size(); ++i)
      expected.push_back(log_probability(std::span(logits).subspan(vocab * (i - 1), vocab), prompt[i]));
    scored.on_prompt = [&](const NewToken& token) {
      EXPECT_EQ(token.number, got.size() + 1);
      EXPECT_EQ(token.token, prompt[token.number]);
      EXPECT_EQ(token.most_likely.size(), 2u);
      EXPECT_TRUE(after.empty());
      got.push_back(token.log_probability);
    };
    scored.on_token = [&](const NewToken& token) {
      after.push_back(token.token);
      return true;
    };
    other.on_token = [&](const NewToken& token) {
      plain.push_back(token.token);
      return true;
    };
    TextEnd how = TextEnd::unwanted;
    scored.on_end = [&](TextEnd why, const std::string& failure) {
      how = why;
      EXPECT_EQ(failure, "");
    };
    batch.add(std::move(other));
    batch.add(std::move(scored));
    while (batch.step()) {
    }
    EXPECT_EQ(got, expected);
    EXPECT_EQ(how, TextEnd::length);
    plain.resize(static_cast<std::size_t>(new_tokens));
    EXPECT_EQ(after, plain);
  }
  for (const Place place : kPlaces)
    EXPECT_LE(static_cast<std::int64_t>(inference.session().peak(place).total),
              inference.plan().memory.bytes[static_cast<std::size_t>(place)]);
}

TEST(BatchGenerator, AskedForTooMuchSaysSoAndGoesOn) {
  const Golden golden = load_golden("golden/llama-tiny");
  const BatchLimits limits{.sequences = 2, .prefill_tokens = 8, .page_rows = 4, .pages = 3};
  InferenceOptions options;
  options.command = "serve";
  options.model = golden.directory;
  options.threads = 1;
  options.device_bytes = options.host_bytes = 1 << 25;
  Inference inference(options, alone(), [&](ModelEngine& engine, LanguageModel& model) {
    rehearse(engine, model, kv_dtype(options), limits);
  });
  BatchPass pass(inference.engine(), inference.model(), kv_dtype(options), limits);
  BatchGenerator batch(pass, golden.config, limits);
  const auto ask = [&](const Ids& prompt, std::int64_t tokens) {
    TextRequest request;
    request.prompt = prompt;
    request.options.max_new_tokens = tokens;
    return request;
  };
  EXPECT_TRUE(names(error_text([&] { batch.add(ask({1, 2}, 20)); }), "12 positions"));
  EXPECT_TRUE(names(error_text([&] { batch.add(ask({-1}, 2)); }), "vocabulary"));
  EXPECT_FALSE(batch.step());
  // One that wants no more after two tokens, and one that goes on.
  TextRequest tired = ask({1, 2}, 6), patient = ask({3}, 6);
  int tokens = 0, more = 0;
  TextEnd how = TextEnd::length;
  tired.on_token = [&](const NewToken&) { return ++tokens < 2; };
  tired.on_end = [&](TextEnd why, const std::string&) { how = why; };
  patient.on_token = [&](const NewToken& made) {
    EXPECT_EQ(made.most_likely.size(), 0u);
    return ++more > 0;
  };
  batch.add(std::move(tired));
  batch.add(std::move(patient));
  while (batch.step()) {
  }
  EXPECT_EQ(tokens, 2);
  EXPECT_EQ(more, 6);
  EXPECT_EQ(how, TextEnd::unwanted);
  const std::uint64_t dropped = batch.add(ask({1, 2, 3}, 6));
  batch.drop(dropped);
  EXPECT_FALSE(batch.step());
  EXPECT_EQ(batch.scheduler().pool().free_pages(), limits.pages);
}

TEST(Likelihoods, AreThoseOfASoftmax) {
  const std::vector<float> logits{0, std::log(2.0f), 0, std::log(4.0f)};
  EXPECT_NEAR(log_probability(logits, 1), std::log(0.25), 1e-6);
  const auto likely = most_likely(logits, 3);
  ASSERT_EQ(likely.size(), 3u);
  EXPECT_EQ(likely[0].token, 3);
  EXPECT_NEAR(likely[0].log_probability, std::log(0.5), 1e-6);
  EXPECT_EQ(likely[1].token, 1);
  EXPECT_EQ(likely[2].token, 0);
  EXPECT_EQ(most_likely(logits, 9).size(), 4u);
}

}  // namespace
}  // namespace zeepo
