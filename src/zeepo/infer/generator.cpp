#include "zeepo/infer/generator.h"

#include <algorithm>
#include <chrono>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/timeline.h"
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

const PassReport& Generation::median_pass() const {
  if (decode.empty()) return prefill;
  std::vector<const PassReport*> passes;
  for (const PassReport& pass : decode) passes.push_back(&pass);
  const auto middle = passes.begin() + static_cast<std::ptrdiff_t>(passes.size() / 2);
  std::ranges::nth_element(passes, middle, {}, &PassReport::seconds);
  return **middle;
}

Generation generate(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
                    const GenerateOptions& options, const std::function<void(std::int32_t)>& on_token) {
  check_prompt(model.config(), prompt, options.max_new_tokens);
  const bool dry = Device::current().compute.dry();
  Timeline* const timeline = Device::current().timeline;
  KvCache cache(model.config(), 1, static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens, dtype);
  Generation result;
  Tensor input = row(prompt);
  const auto pass = [&](Engine::Then then) {
    const std::string number = std::to_string(result.ids.size() + 1);
    if (timeline) timeline->begin_step(static_cast<std::int64_t>(result.ids.size()) + 1);
    const Span span(timeline, TimelineRow::steps, "pass", {number});
    const auto start = std::chrono::steady_clock::now();
    const Stalls stalled = engine.stalls();
    const MovedBytes before = engine.moved().in_time;
    std::vector<float> logits;
    engine.infer([&] { logits = model.logits(input, &cache, LanguageModel::Positions::last).to_floats(); }, then);
    const PassReport report{seconds_since(start), engine.stalls() - stalled, engine.moved().in_time - before};
    if (result.ids.empty())
      result.prefill = report;
    else
      result.decode.push_back(report);
    return logits;
  };
  // Of a dry run the first pass is recorded, the second runs ahead of the third, and the later ones are alike.
  const std::int64_t most = dry ? std::min<std::int64_t>(3, options.max_new_tokens) : options.max_new_tokens;
  auto first = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < most; ++i) {
    const auto logits = pass(i + 1 < most ? Engine::Then::another : Engine::Then::nothing);
    const std::int32_t token = dry ? 0 : choose_token(logits, options.sampling, static_cast<std::uint64_t>(i));
    if (i == 0) first = std::chrono::steady_clock::now();
    result.ids.push_back(token);
    on_token(token);
    if (!dry && std::ranges::find(options.stop, token) != options.stop.end()) break;
    input = row({&token, 1});
  }
  result.seconds_decode = seconds_since(first);
  return result;
}

std::vector<float> prompt_logits(ModelEngine& engine, LanguageModel& model, std::span<const std::int32_t> prompt) {
  check_prompt(model.config(), prompt, 0);
  std::vector<float> logits;
  engine.infer([&] { logits = model.logits(row(prompt)).to_floats(); });
  return logits;
}

}  // namespace zeepo
