#include "zeepo/infer/generator.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/timeline.h"
#include "zeepo/infer/generate_ahead.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Tensor row(std::span<const std::int32_t> ids) {
  return Tensor::from<std::int32_t>(ids, {1, static_cast<std::int64_t>(ids.size())});
}

}  // namespace

void check_prompt(const ModelConfig& config, std::span<const std::int32_t> prompt, std::int64_t new_tokens) {
  if (prompt.empty()) throw Error("generate: the prompt is empty; give at least one token");
  for (std::size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= config.vocab)
      throw Error("generate: token {} of the prompt is {}, the vocabulary has {} entries", i, prompt[i], config.vocab);
  if (new_tokens > config.max_positions - static_cast<std::int64_t>(prompt.size()))
    throw Error("generate: {} prompt tokens and {} new ones, but the model has {} positions; lower --max-new-tokens",
                prompt.size(), new_tokens, config.max_positions);
}

// Of a dry run the first pass and the longest: those between need no more than that one.
std::span<const std::int32_t> read_all_but_last(ModelEngine& engine, LanguageModel& model, KvCache& cache,
                                                std::span<const std::int32_t> prompt, std::int64_t tokens_a_pass) {
  const auto pass = static_cast<std::size_t>(tokens_a_pass), passes = (prompt.size() - 1) / pass;
  for (std::size_t i = 0; i < passes; ++i) {
    if (Device::current().compute.dry() && i == 1) i = passes - 1;
    for (LayerCache& layer : cache.layers) layer.length = static_cast<std::int64_t>(i * pass);
    const auto read = [&] {
      (void)model.logits(row(prompt.subspan(i * pass, pass)), &cache, LanguageModel::Positions::last);
      Device::current().compute.synchronize();
    };
    engine.infer(read, Engine::Then::another);
  }
  return prompt.subspan(passes * pass);
}

const PassReport& Generation::median_pass() const {
  if (decode.empty()) return prefill;
  std::vector<const PassReport*> passes;
  for (const PassReport& pass : decode) passes.push_back(&pass);
  const auto middle = passes.begin() + static_cast<std::ptrdiff_t>(passes.size() / 2);
  std::ranges::nth_element(passes, middle, {}, &PassReport::seconds);
  return **middle;
}

namespace {

// One text: each round runs the tokens that the model has not seen, and takes what follows them. A draft is taken as
// far as it has the tokens that the model's own logits choose, so that it changes none.
class Text {
 public:
  Text(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
       const GenerateOptions& options)
      : engine_(engine),
        model_(model),
        options_(options),
        cache_(model.config(), 1, static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens, dtype),
        capacity_(static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens),
        draft_tokens_(options.draft_tokens),
        unseen_(prompt.begin(), prompt.end()) {}

  bool ended() const { return stopped_ || left() <= 0; }
  std::int64_t left() const { return options_.max_new_tokens - static_cast<std::int64_t>(result_.ids.size()); }
  Generation& result() { return result_; }

  // Calls on_token with each new token.
  void round(Engine::Then then, const std::function<void(std::int32_t)>& on_token) {
    const std::vector<std::int32_t> draft = result_.ids.empty() ? std::vector<std::int32_t>{} : drafted();
    const std::int64_t seen = cache_.length() + static_cast<std::int64_t>(unseen_.size());
    const std::size_t first = result_.ids.size();
    unseen_.insert(unseen_.end(), draft.begin(), draft.end());
    const auto logits = checked(static_cast<std::int64_t>(draft.size()) + 1, then);
    std::size_t accepted = 0;
    for (std::size_t i = 0; i <= draft.size() && !ended(); ++i) {
      const std::int32_t token = choose(logits, i, first + i, draft);
      result_.ids.push_back(token);
      on_token(token);
      stopped_ = is_stop(token);
      if (i == draft.size() || token != draft[i]) break;
      ++accepted;
    }
    result_.drafted += static_cast<std::int64_t>(draft.size());
    result_.accepted += static_cast<std::int64_t>(accepted);
    adapt(draft.size(), accepted);
    set_length(seen + static_cast<std::int64_t>(accepted));
    unseen_ = {result_.ids.back()};
  }

  // The last positions that the cache has room for: for a dry run.
  void go_to_end() { set_length(capacity_ - std::min(left(), options_.draft_tokens + 1)); }

 private:
  static bool dry() { return Device::current().compute.dry(); }
  bool is_stop(std::int32_t token) const {
    return !dry() && std::ranges::find(options_.stop, token) != options_.stop.end();
  }
  void set_length(std::int64_t length) {
    for (LayerCache& layer : cache_.layers) layer.length = length;
  }

  // A draft is as long as the last one was right, and one token more; twice as long where all of it was.
  void adapt(std::size_t drafted, std::size_t accepted) {
    if (drafted == 0) return;
    const auto right = static_cast<std::int64_t>(accepted);
    draft_tokens_ = std::min(options_.draft_tokens, accepted == drafted ? 2 * right : right + 1);
  }

  // Of the rows of a pass: the token that follows the text with i more tokens.
  std::int32_t choose(std::span<const float> logits, std::size_t at, std::size_t number,
                      const std::vector<std::int32_t>& draft = {}) const {
    if (dry()) return at < draft.size() ? draft[at] : 0;
    const auto vocab = static_cast<std::size_t>(model_.config().vocab);
    return choose_token(logits.subspan(at * vocab, vocab), options_.sampling, number);
  }

  // What is left of the cache's positions is room for the tokens that come after the draft. Logits that choose no token
  // end the draft: the pass of the weights themselves says what is wrong.
  std::vector<std::int32_t> drafted() {
    std::vector<std::int32_t> draft;
    const std::int64_t most = engine_.drafts() ? std::min(draft_tokens_, left() - 1) : 0;
    const std::int64_t seen = cache_.length();
    std::int32_t last = unseen_.back();
    while (static_cast<std::int64_t>(draft.size()) < most && !(draft.size() > 0 && is_stop(last))) {
      const bool more = static_cast<std::int64_t>(draft.size()) + 1 < most;
      std::vector<float> logits;
      engine_.infer_draft(
          [&] {
            logits = model_.logits(row({&last, 1}), &cache_, LanguageModel::Positions::last).to_floats();
          },
          more ? Engine::Then::another : Engine::Then::nothing);
      if (!dry() && !choose_any(logits)) break;
      last = choose(logits, 0, result_.ids.size() + draft.size());
      draft.push_back(last);
    }
    set_length(seen);  // the keys and values of a draft are coarse too
    return draft;
  }

  // A pass over what the model has not seen: the logits of its last `rows` tokens. A long prompt takes several: the
  // last one's report has the seconds of all.
  std::vector<float> checked(std::int64_t rows, Engine::Then then) {
    Timeline* const timeline = Device::current().timeline;
    const std::string number = std::to_string(result_.ids.size() + 1);
    if (timeline) timeline->begin_step(static_cast<std::int64_t>(result_.ids.size()) + 1);
    const Span span(timeline, TimelineRow::steps, "pass", {number});
    const auto start = std::chrono::steady_clock::now();
    std::span<const std::int32_t> ids = unseen_;
    if (result_.ids.empty()) ids = read_all_but_last(engine_, model_, cache_, ids, options_.prefill_tokens);
    const Stalls stalled = engine_.stalls();
    const MovedBytes before = engine_.moved().in_time;
    const auto positions = rows == 1 ? LanguageModel::Positions::last : LanguageModel::Positions::all;
    std::vector<float> logits;
    engine_.infer([&] { logits = model_.logits(row(ids), &cache_, positions).to_floats(); }, then);
    const PassReport report{seconds_since(start), engine_.stalls() - stalled, engine_.moved().in_time - before};
    if (result_.ids.empty())
      result_.prefill = report;
    else
      result_.decode.push_back(report);
    return logits;
  }

  ModelEngine& engine_;
  LanguageModel& model_;
  const GenerateOptions& options_;
  KvCache cache_;
  std::int64_t capacity_;
  std::int64_t draft_tokens_;  // of the next round, at most
  std::vector<std::int32_t> unseen_;
  bool stopped_ = false;
  Generation result_;
};

}  // namespace

Generation generate(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
                    const GenerateOptions& options, const std::function<void(std::int32_t)>& on_token) {
  check_prompt(model.config(), prompt, options.max_new_tokens);
  if (runs_ahead(engine, options)) return generate_ahead(engine, model, dtype, prompt, options, on_token);
  const bool dry = Device::current().compute.dry();
  // Of a dry run the first pass is recorded, the second runs ahead of the third, and the later ones are alike.
  constexpr int kDryRounds = 3;
  const std::int64_t most_a_round = engine.drafts() ? options.draft_tokens + 1 : 1;
  Text text(engine, model, dtype, prompt, options);
  auto first = std::chrono::steady_clock::now();
  for (int round = 0; !text.ended() && !(dry && round == kDryRounds); ++round) {
    if (dry && round + 1 == kDryRounds && engine.drafts()) text.go_to_end();
    const std::int64_t sure = round == 0 ? 1 : most_a_round;
    const bool last = text.left() <= sure || (dry && round + 1 == kDryRounds);
    text.round(last ? Engine::Then::nothing : Engine::Then::another, on_token);
    if (round == 0) first = std::chrono::steady_clock::now();
  }
  text.result().seconds_decode = seconds_since(first);
  return text.result();
}

std::vector<float> prompt_logits(ModelEngine& engine, LanguageModel& model, std::span<const std::int32_t> prompt) {
  check_prompt(model.config(), prompt, 0);
  std::vector<float> logits;
  engine.infer([&] { logits = model.logits(row(prompt)).to_floats(); });
  return logits;
}

}  // namespace zeepo
