#include "zeepo/plan/inference_time.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "zeepo/infer/batch_pass.h"
#include "zeepo/infer/generator.h"
#include "zeepo/plan/count.h"

namespace zeepo {
namespace {

constexpr int kDecodes = 3;  // passes that are simulated: the first follows the prompts, the others are alike

// generate() keeps the cache of one text in one piece.
bool in_one_piece(const InferenceOptions& options, const TextsAsked& texts) {
  return texts.batch == 1 && options.kv == Place::device;
}

// Positions before the token in the middle of those that are made.
std::int64_t middle(const TextsAsked& texts) { return texts.prompt_tokens + (texts.new_tokens - 1) / 2; }

// Ends of passes, in the order in which they run: those of prompts, then the others.
struct Laps {
  SimulatedTime& time;
  std::vector<double> prompts = {}, decodes = {};
  BusySeconds busy_at_first_decode = {};

  double now() const { return std::max(time.now(), time.computed()); }
  void decoded() {
    if (decodes.empty()) busy_at_first_decode = time.busy_seconds();
    decodes.push_back(now());
  }
};

// The passes of generate().
void run_one(ModelEngine& engine, LanguageModel& model, DType kv, const TextsAsked& texts, Laps& laps) {
  KvCache cache(model.config(), 1, texts.prompt_tokens + texts.new_tokens, kv);
  const auto pass = [&](std::int64_t tokens) {
    const std::vector<std::int32_t> ids(static_cast<std::size_t>(tokens), 0);
    engine.infer(
        [&] {
          const Tensor input = Tensor::from<std::int32_t>(ids, {1, tokens});
          (void)model.logits(input, &cache, LanguageModel::Positions::last).to_floats();
        },
        Engine::Then::another);
  };
  pass(texts.prompt_tokens);
  laps.prompts.push_back(laps.now());
  for (int i = 0; i < kDecodes; ++i) {
    for (LayerCache& layer : cache.layers) layer.length = middle(texts);
    pass(1);
    laps.decoded();
  }
}

// Prompts of a pass: whole ones as many as it takes, or a part of one.
struct PromptPass {
  std::int64_t sequences, rows, passes;
};
PromptPass prompt_pass(const TextsAsked& texts, const BatchLimits& limits) {
  const std::int64_t rows = std::min(texts.prompt_tokens, limits.prefill_tokens);
  const std::int64_t sequences = std::min(texts.batch, limits.prefill_tokens / rows);
  return {sequences, rows, divide_up(texts.batch * divide_up(texts.prompt_tokens, rows), sequences)};
}

BatchStep step_of(const BatchLimits& limits, const TextsAsked& texts, std::int64_t sequences, std::int64_t past,
                  std::int64_t rows) {
  const std::int64_t pages_each = limits.pages_for(texts.prompt_tokens + texts.new_tokens);
  BatchStep step;
  step.another = true;
  for (std::int64_t i = 0; i < sequences; ++i) {
    std::vector<std::int32_t> pages(static_cast<std::size_t>(pages_each));
    std::iota(pages.begin(), pages.end(), static_cast<std::int32_t>(i * pages_each));
    step.parts.push_back({0, past, std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0), pages, true});
  }
  return step;
}

// The passes of a batch whose texts begin together.
void run_batch(ModelEngine& engine, LanguageModel& model, DType kv, const BatchLimits& limits, const TextsAsked& texts,
               Laps& laps) {
  BatchPass pass(engine, model, kv, limits);
  const PromptPass prompts = prompt_pass(texts, limits);
  const std::int64_t past = (texts.prompt_tokens - prompts.rows) / 2;  // in the middle of those that take several
  for (std::int64_t i = 0; i < std::min<std::int64_t>(2, prompts.passes); ++i) {
    (void)pass.lead(step_of(limits, texts, prompts.sequences, past, prompts.rows));
    laps.prompts.push_back(laps.now());
  }
  for (int i = 0; i < kDecodes; ++i) {
    (void)pass.lead(step_of(limits, texts, texts.batch, middle(texts), 1));
    laps.decoded();
  }
}

}  // namespace

BatchLimits limits_of(const TextsAsked& texts, Place kv) {
  BatchLimits limits;
  limits.sequences = texts.batch;
  limits.pages = texts.batch * limits.pages_for(texts.prompt_tokens + texts.new_tokens);
  limits.kv = kv;
  return limits;
}

InferenceWork work_of(const InferenceOptions& options, const TextsAsked& texts) {
  if (!in_one_piece(options, texts))
    return [options, limits = limits_of(texts, options.kv)](ModelEngine& engine, LanguageModel& model) {
      rehearse(engine, model, kv_dtype(options, engine), limits);
    };
  return [options, texts](ModelEngine& engine, LanguageModel& model) {
    const std::vector<std::int32_t> prompt(static_cast<std::size_t>(texts.prompt_tokens), 0);
    GenerateOptions asked;
    asked.max_new_tokens = texts.new_tokens;
    (void)generate(engine, model, kv_dtype(options, engine), prompt, asked, [](std::int32_t) {});
  };
}

InferenceTime predict_inference(const InferenceOptions& options, const ModelConfig& config, const RankShape& ranks,
                                const TextsAsked& texts, const SimulatedRates& rates, StepTimeline* timeline) {
  SimulatedTime clock(rates);
  std::optional<SimulatedRecord> record;
  if (timeline != nullptr) record.emplace();
  Laps laps{clock};
  double begin = 0;
  const BatchLimits limits = limits_of(texts, options.kv);
  const auto work = [&](ModelEngine& engine, LanguageModel& model) {
    begin = laps.now();
    if (in_one_piece(options, texts))
      run_one(engine, model, kv_dtype(options), texts, laps);
    else
      run_batch(engine, model, kv_dtype(options), limits, texts, laps);
  };
  (void)dry_inference(options, config, ranks, work, &clock);

  if (timeline != nullptr) *timeline = timeline_between(*record, *(laps.decodes.end() - 2), laps.decodes.back());
  InferenceTime result;
  result.first_token_seconds = laps.prompts.front() - begin;
  if (laps.prompts.size() > 1) {
    const auto more = static_cast<double>(prompt_pass(texts, limits).passes - 1);
    result.first_token_seconds += more * (laps.prompts[1] - laps.prompts[0]);
  }
  constexpr int kAlike = kDecodes - 1;
  result.pass_seconds = (laps.decodes.back() - laps.decodes.front()) / kAlike;
  for (std::size_t i = 0; i < result.busy_seconds.size(); ++i)
    result.busy_seconds[i] = (clock.busy_seconds()[i] - laps.busy_at_first_decode[i]) / kAlike;
  result.tokens_per_second = static_cast<double>(texts.batch) / result.pass_seconds;
  result.seconds = result.first_token_seconds + static_cast<double>(texts.new_tokens - 1) * result.pass_seconds;
  return result;
}

}  // namespace zeepo
