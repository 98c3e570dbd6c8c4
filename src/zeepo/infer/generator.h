// Text from a model, token by token, each position computed once.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "zeepo/binding/model_engine.h"
#include "zeepo/infer/sampling.h"
#include "zeepo/model/language_model.h"

namespace zeepo {

struct GenerateOptions {
  std::int64_t max_new_tokens = 64;
  Sampling sampling;
  std::vector<std::int32_t> stop;  // tokens that end the text; the one met is the last of the result
  // Tokens that are drafted at a time, where the engine keeps a draft of the weights; one pass then checks all of them.
  std::int64_t draft_tokens = 0;
  // Of the prompt in a pass; a longer one takes several. Few enough that working memory has an end, and so many that a
  // pass costs no more for each of them.
  std::int64_t prefill_tokens = 8192;
};

// Of one pass through the model. The bytes are those of every weight that the pass used, whenever they were moved.
struct PassReport {
  double seconds = 0;
  Stalls stalls = {};
  MovedBytes moved = {};
};

struct Generation {
  std::vector<std::int32_t> ids;  // new tokens
  PassReport prefill;
  std::vector<PassReport> decode;  // the passes after the prompt's: one a token, less where drafts are accepted
  double seconds_decode = 0;       // from the first token to the last
  std::int64_t drafted = 0, accepted = 0;

  // The decoding pass in the middle, by its seconds; the prompt's where there is no other.
  const PassReport& median_pass() const;
  const PassReport& last_pass() const { return decode.empty() ? prefill : decode.back(); }
};

// `engine` is the model's, and its device is in scope. `on_token` sees each new token at once. Throws Error for an
// empty prompt, ids outside the vocabulary, and more positions than the model has.
Generation generate(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
                    const GenerateOptions& options, const std::function<void(std::int32_t)>& on_token);

// Reads the prompt into the cache, so many tokens a pass, but for those of the last pass: they are what is left.
std::span<const std::int32_t> read_all_but_last(ModelEngine& engine, LanguageModel& model, KvCache& cache,
                                                std::span<const std::int32_t> prompt, std::int64_t tokens_a_pass);

// Logits of every position of the prompt.   (tokens, vocab), row by row
std::vector<float> prompt_logits(ModelEngine& engine, LanguageModel& model, std::span<const std::int32_t> prompt);

// Throws as generate() would, before any memory is taken.
void check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt, std::int64_t new_tokens);

}  // namespace zeepo
