// Training on targets of which only some count: the loss is the mean over those of the whole step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/data/tokenizer.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

struct TunedRun {
  std::vector<double> losses, norms;
  std::vector<std::int64_t> counted;  // empty: no mask
  std::string hash;
};

class FineTuning : public testing::Test {
 protected:
  FineTuning() {
    const Json config = {{"model_type", "gpt2"}, {"architectures", {"GPT2LMHeadModel"}},
                         {"n_embd", 16},         {"n_head", 2},
                         {"n_layer", 1},         {"n_positions", 64},
                         {"vocab_size", 1000},   {"eos_token_id", 0},
                         {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0},
                         {"attn_pdrop", 0.0}};
    folder_.write("config.json", config.dump());
    folder_.write("tokenizer.json",
                  read_text(std::filesystem::path(kTestData) / "golden/tokenizers/gpt2-bpe/tokenizer.json"));
    folder_.write("chat_template.jinja",
                  "{% for m in messages %}{{ '<' + m.role + '>' + m.content + '\n' }}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}");
    tokenizer_.emplace(Tokenizer::load(folder_.path() / "tokenizer.json"));
  }

  TrainOptions options(const std::vector<Json>& lines, std::int64_t seq_len) const {
    std::string data;
    for (const Json& line : lines) data += line.dump() + "\n";
    TrainOptions options;
    options.model = folder_.path();
    options.data = folder_.write("data.jsonl", data);
    options.from_scratch = true;
    options.seq_len = seq_len;
    options.micro_batch = 1;
    options.steps = 1;
    options.order = Order::as_is;
    options.threads = 1;
    return options;
  }

  TunedRun train(TrainOptions options, int ranks = 1) const {
    options.log = (folder_.path() / "log.jsonl").string();
    testing::internal::CaptureStderr();
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    testing::internal::GetCapturedStderr();
    TunedRun record;
    std::ifstream lines(options.log);
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == "step") {
        record.losses.push_back(event.at("loss"));
        record.norms.push_back(event.at("grad_norm"));
        if (event.contains("loss_tokens")) record.counted.push_back(event.at("loss_tokens"));
      } else if (event.at("event") == "summary") {
        record.hash = event.at("weights_hash");
      }
    }
    return record;
  }

  std::int64_t tokens_of(const std::string& text) const {
    return static_cast<std::int64_t>(tokenizer_->encode(text).size());
  }

  // A line whose completion begins with word `split`; all orders of the words have as many tokens.
  static Json line(std::vector<std::string> words, std::size_t split) {
    Json made = {{"prompt", ""}, {"completion", ""}};
    for (std::size_t i = 0; i < words.size(); ++i)
      made[i < split ? "prompt" : "completion"] =
          made[i < split ? "prompt" : "completion"].get<std::string>() + words[i];
    return made;
  }

  TestDirectory folder_;
  std::optional<Tokenizer> tokenizer_;
};

const std::vector<std::string> kOne = {" alpha", " beta", " gamma", " delta"},
                               kTwo = {" delta", " gamma", " alpha", " beta"};

// The mean over what counts in both samples, not the mean of their means; once as two micro-batches of a step, once as
// two rows of one.
TEST_F(FineTuning, TheLossIsTheMeanOverTheTargetsThatCount) {
  std::int64_t length = 1;  // the end
  for (const std::string& word : kOne) length += tokens_of(word);
  const Json one = line(kOne, 1), two = line(kTwo, 3);
  const TunedRun first = train(options({one, two}, length)), second = train(options({two, one}, length));
  ASSERT_EQ(first.counted.size(), 1u);
  EXPECT_EQ(first.counted[0], length - tokens_of(kOne[0]));
  EXPECT_EQ(second.counted[0], 1 + tokens_of(kTwo[3]));
  const double n1 = static_cast<double>(first.counted[0]), n2 = static_cast<double>(second.counted[0]);
  const double mean = (first.losses[0] * n1 + second.losses[0] * n2) / (n1 + n2);
  ASSERT_GT(std::abs(mean - (first.losses[0] + second.losses[0]) / 2), 1e-4);  // or nothing would be shown

  TrainOptions both = options({one, two, one}, length);
  both.grad_accum = 2;
  const TunedRun accumulated = train(both);
  EXPECT_EQ(accumulated.counted[0], first.counted[0] + second.counted[0]);
  EXPECT_NEAR(accumulated.losses[0], mean, 1e-6 * mean);
  both.grad_accum = 1;
  both.micro_batch = 2;
  const TunedRun rows = train(both);
  EXPECT_NEAR(rows.losses[0], mean, 1e-6 * mean);
  EXPECT_NEAR(rows.norms[0], accumulated.norms[0], 1e-5 * rows.norms[0]);
}

TEST_F(FineTuning, WhereAllTargetsCountTheBitsAreThoseOfText) {
  std::vector<Json> text, completions;
  for (int i = 0; i < 40; ++i) {
    const std::string words = i % 2 == 0 ? " alpha beta" : " gamma delta epsilon";
    text.push_back({{"text", words}});
    completions.push_back({{"prompt", ""}, {"completion", words}});
  }
  TrainOptions plain = options(text, 7);
  plain.steps = 5;
  plain.micro_batch = 2;
  plain.grad_accum = 3;
  const TunedRun unmasked = train(plain);
  EXPECT_TRUE(unmasked.counted.empty());
  TrainOptions masked = options(completions, 7);
  masked.steps = 5;
  masked.micro_batch = 2;
  masked.grad_accum = 3;
  const TunedRun counted = train(masked);
  EXPECT_EQ(counted.counted, std::vector<std::int64_t>(5, 7 * 2 * 3));
  EXPECT_EQ(counted.losses, unmasked.losses);
  EXPECT_EQ(counted.norms, unmasked.norms);
  EXPECT_EQ(counted.hash, unmasked.hash);
}

// Samples are short beside the conversations, so that some micro-batches count nothing.
TEST_F(FineTuning, AnyNumberOfRanksGivesTheSameBits) {
  std::vector<Json> lines;
  for (int i = 0; i < 30; ++i) {
    const std::string question(static_cast<std::size_t>(10 + i), 'q'), answer(static_cast<std::size_t>(1 + i % 7), 'z');
    lines.push_back(
        {{"messages", {{{"role", "user"}, {"content", question}}, {{"role", "assistant"}, {"content", answer}}}}});
  }
  TrainOptions one = options(lines, 6);
  one.steps = 6;
  one.grad_accum = 6;
  const TunedRun alone = train(one);
  ASSERT_EQ(alone.counted.size(), 6u);
  EXPECT_LT(*std::ranges::max_element(alone.counted), 36);
  for (const double loss : alone.losses) EXPECT_TRUE(std::isfinite(loss));
  for (const int ranks : {2, 3})
    for (const int stage : {0, 3}) {
      TrainOptions several = one;
      several.grad_accum = 6 / ranks;
      several.stage = stage;
      const TunedRun shared = train(several, ranks);
      EXPECT_EQ(shared.losses, alone.losses) << ranks;
      EXPECT_EQ(shared.norms, alone.norms) << ranks;
      EXPECT_EQ(shared.counted, alone.counted) << ranks;
      EXPECT_EQ(shared.hash, alone.hash) << ranks;
    }
}

TEST_F(FineTuning, AStepThatCountsNothingHasNoLossAndNoGradient) {
  const std::string long_question(200, 'q');
  const Json line = {
      {"messages", {{{"role", "user"}, {"content", long_question}}, {{"role", "assistant"}, {"content", "z"}}}}};
  const TunedRun record = train(options({line}, 4));
  EXPECT_EQ(record.counted, std::vector<std::int64_t>{0});
  EXPECT_EQ(record.losses, std::vector<double>{0});
  EXPECT_EQ(record.norms, std::vector<double>{0});
}

TEST_F(FineTuning, FaultsNameTheLineAndTheWayOut) {
  const auto fault = [&](const std::vector<Json>& lines) { return error_text([&] { Trainer(options(lines, 4)); }); };
  const Json text = {{"text", "a b c d e f"}}, completion = {{"prompt", "a"}, {"completion", "b"}};
  EXPECT_TRUE(names(fault({completion, text}), "data.jsonl:2", "\"text\"", "of one kind"));
  EXPECT_TRUE(names(fault({{{"text", "a"}, {"messages", Json::array()}}}), "data.jsonl:1", "more than one"));
  EXPECT_TRUE(names(fault({{{"prompt", "a"}}}), "data.jsonl:1", "has no \"text\""));
  EXPECT_TRUE(names(fault({text, completion}), "data.jsonl:2", "\"completion\"", "no \"text\""));
  EXPECT_TRUE(names(fault({{{"messages", {{{"role", "user"}, {"content", "only a question"}}}}}}), "data.jsonl",
                    "none of its", "counts in the loss"));
  std::filesystem::remove(folder_.path() / "chat_template.jinja");
  EXPECT_TRUE(
      names(fault({{{"messages", {{{"role", "user"}, {"content", "x"}}}}}}), "data.jsonl:1", "chat_template.jinja"));
}

}  // namespace
}  // namespace zeepo
