#include "zeepo/infer/batch_generator.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {

float log_probability(std::span<const float> logits, std::int32_t token) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return static_cast<float>(static_cast<double>(logits[static_cast<std::size_t>(token)]) - best - std::log(sum));
}

std::vector<LikelyToken> most_likely(std::span<const float> logits, int n) {
  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const std::size_t count = std::min(logits.size(), static_cast<std::size_t>(std::max(0, n)));
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
                      return x != y ? x > y : a < b;
                    });
  std::vector<LikelyToken> likely;
  if (count == 0) return likely;
  const float first = log_probability(logits, order[0]);
  for (std::size_t i = 0; i < count; ++i)
    likely.push_back(
        {order[i], first + (logits[static_cast<std::size_t>(order[i])] - logits[static_cast<std::size_t>(order[0])])});
  return likely;
}

namespace {

void add_likelihoods(const TextRequest& request, std::span<const float> logits, NewToken& token) {
  if (request.likelihoods < 0) return;
  token.log_probability = log_probability(logits, token.token);
  token.most_likely = most_likely(logits, request.likelihoods);
}

}  // namespace

BatchGenerator::BatchGenerator(BatchPass& pass, const ModelConfig& config, const BatchLimits& limits)
    : pass_(pass), config_(config), limits_(limits), scheduler_(limits) {}

std::uint64_t BatchGenerator::add(TextRequest request) {
  check_prompt(config_, request.prompt, request.options.max_new_tokens);
  const std::uint64_t name = next_name_++;
  if (request.options.max_new_tokens == 0 && !request.scores_prompt) {
    request.on_end(TextEnd::length, "");
    return name;
  }
  scheduler_.add(name, request.prompt, std::max<std::int64_t>(1, request.options.max_new_tokens),
                 request.scores_prompt ? PromptLogits::all : PromptLogits::last);
  requests_.emplace(name, Running{std::move(request), 0, limits_.draft_tokens});
  return name;
}

void BatchGenerator::drop(std::uint64_t request) {
  scheduler_.end(request);
  requests_.erase(request);
}

bool BatchGenerator::step() {
  BatchStep step = scheduler_.next();
  if (step.parts.empty()) return false;
  for (const BatchPart& part : step.parts)
    if (part.past == 0) requests_.at(part.sequence).request.on_start();
  if (pass_.drafts()) draft(step);
  const BatchPass::Result result = pass_.lead(step);
  last_pass_ = result.report;
  last_tokens_ = step.tokens();
  last_had_prompts_ =
      std::ranges::any_of(step.parts, [](const BatchPart& part) { return part.past == 0 || part.undrafted() > 1; });
  const auto vocab = static_cast<std::size_t>(pass_.vocab());
  std::size_t row = 0;
  last_new_tokens_ = 0;
  for (const BatchPart& part : step.parts) {
    const auto rows = static_cast<std::size_t>(part.logit_rows());
    const auto logits = std::span(result.logits).subspan(vocab * row, vocab * rows);
    if (part.scored)
      take_scored(part, logits);
    else if (rows > 0)
      take(part, logits);
    row += rows;
  }
  return true;
}

// Token by token, all texts together: each draft pass has the last token of every text that goes on.
void BatchGenerator::draft(BatchStep& step) {
  struct Text {
    BatchPart* part;
    const Running* running;
    std::int64_t most;
  };
  std::vector<Text> texts;
  for (BatchPart& part : step.parts) {
    const Running& running = requests_.at(part.sequence);
    const std::int64_t left = running.request.options.max_new_tokens - static_cast<std::int64_t>(running.tokens);
    const std::int64_t most = std::min(running.draft_tokens, left - 1);  // one comes from the pass itself
    if (part.past > 0 && part.ids.size() == 1 && part.wants_logits && !part.scored)
      texts.push_back({&part, &running, most});
  }
  const std::int64_t share = limits_.drafted_at_once / std::max<std::int64_t>(1, std::ssize(texts));
  for (Text& text : texts) text.most = std::min(text.most, share);
  for (;;) {
    std::erase_if(texts, [](const Text& text) { return text.part->drafted >= text.most; });
    if (texts.empty()) return;
    BatchStep drafts;
    for (const Text& text : texts) {
      const BatchPart& part = *text.part;
      drafts.parts.push_back({part.sequence, part.past + part.drafted, {part.ids.back()}, part.pages, true});
      drafts.another |= part.drafted + 1 < text.most;
    }
    const std::vector<float> logits = pass_.draft(drafts);
    const std::size_t vocab = logits.size() / texts.size();
    for (std::size_t i = 0; i < texts.size(); ++i)
      if (!add_draft(*texts[i].running, std::span(logits).subspan(vocab * i, vocab), *texts[i].part)) texts[i].most = 0;
  }
}

// Logits that are no numbers choose no token: the pass of the weights themselves says what is wrong.
bool BatchGenerator::add_draft(const Running& running, std::span<const float> logits, BatchPart& part) {
  if (!choose_any(logits)) return false;
  const GenerateOptions& options = running.request.options;
  part.ids.push_back(choose_token(logits, options.sampling, running.tokens + static_cast<std::uint64_t>(part.drafted)));
  ++part.drafted;
  return std::ranges::find(options.stop, part.ids.back()) == options.stop.end();
}

// A draft is taken as far as it has the tokens that the model's own logits choose, so that it changes none. The next
// one is as long as this one was right, and one token more; twice as long where all of it was.
void BatchGenerator::take(const BatchPart& part, std::span<const float> logits) {
  const auto vocab = static_cast<std::size_t>(pass_.vocab());
  const auto draft = std::span(part.ids).last(static_cast<std::size_t>(part.drafted));
  drafted_.tokens += part.drafted;
  for (std::size_t i = 0; i <= draft.size(); ++i) {
    const auto token = take_token(part.sequence, logits.subspan(vocab * i, vocab));
    if (!token) return;
    if (i < draft.size() && *token == draft[i]) {
      ++drafted_.accepted;
      scheduler_.accept(part.sequence, 1);
      continue;
    }
    scheduler_.continue_with(part.sequence, *token);
    const auto right = static_cast<std::int64_t>(i);
    if (part.drafted > 0)
      requests_.at(part.sequence).draft_tokens =
          std::min(limits_.draft_tokens, right == part.drafted ? 2 * right : right + 1);
    return;
  }
}

// A row tells of the token after its own: the last one of a prompt of the first new token.
void BatchGenerator::take_scored(const BatchPart& part, std::span<const float> logits) {
  const auto vocab = static_cast<std::size_t>(pass_.vocab());
  const TextRequest& request = requests_.at(part.sequence).request;
  for (std::size_t i = 0; i < part.ids.size(); ++i) {
    const auto row = logits.subspan(vocab * i, vocab);
    const std::size_t next = static_cast<std::size_t>(part.past) + i + 1;
    if (next == request.prompt.size()) {
      if (const auto token = take_token(part.sequence, row)) scheduler_.continue_with(part.sequence, *token);
      return;
    }
    NewToken known{.token = request.prompt[next], .number = next};
    add_likelihoods(request, row, known);
    request.on_prompt(known);
  }
}

std::optional<std::int32_t> BatchGenerator::take_token(std::uint64_t name, std::span<const float> logits) {
  Running& running = requests_.at(name);
  const GenerateOptions& options = running.request.options;
  const auto ended = [&](TextEnd why, const std::string& failure = "") {
    end(name, why, failure);
    return std::nullopt;
  };
  if (options.max_new_tokens == 0) return ended(TextEnd::length);
  NewToken made;
  made.number = running.tokens;
  try {
    made.token = choose_token(logits, options.sampling, running.tokens);
  } catch (const Error& error) {
    return ended(TextEnd::unwanted, error.what());
  }
  ++running.tokens;
  ++last_new_tokens_;
  add_likelihoods(running.request, logits, made);
  if (!running.request.on_token(made)) return ended(TextEnd::unwanted);
  if (std::ranges::find(options.stop, made.token) != options.stop.end()) return ended(TextEnd::stop);
  if (running.tokens >= static_cast<std::uint64_t>(options.max_new_tokens)) return ended(TextEnd::length);
  return made.token;
}

void BatchGenerator::end(std::uint64_t name, TextEnd why, const std::string& failure) {
  const auto found = requests_.find(name);
  const auto on_end = std::move(found->second.request.on_end);
  drop(name);
  on_end(why, failure);
}

void BatchGenerator::finish() {
  BatchStep last;
  last.over = true;
  (void)pass_.lead(last);
}

void BatchGenerator::idle() { (void)pass_.lead({}); }

BatchLimits limits_of_one(std::size_t prompt_tokens, std::int64_t new_tokens, std::int64_t prefill_tokens) {
  BatchLimits limits;
  limits.sequences = 1;
  limits.prefill_tokens = prefill_tokens;
  limits.pages = std::max<std::int64_t>(1, limits.pages_for(static_cast<std::int64_t>(prompt_tokens) + new_tokens));
  return limits;
}

Generation generate_in_pages(BatchPass& pass, const ModelConfig& config, const BatchLimits& limits,
                             std::span<const std::int32_t> prompt, const GenerateOptions& options,
                             const std::function<void(std::int32_t)>& on_token) {
  Generation result;
  TextRequest request;
  request.prompt.assign(prompt.begin(), prompt.end());
  request.options = options;
  std::chrono::steady_clock::time_point first, last;
  request.on_token = [&](const NewToken& made) {
    last = std::chrono::steady_clock::now();
    if (made.number == 0) first = last;
    result.ids.push_back(made.token);
    on_token(made.token);
    return true;
  };
  std::string fault;
  request.on_end = [&](TextEnd, const std::string& failure) { fault = failure; };
  BatchGenerator batch(pass, config, limits);
  batch.add(std::move(request));
  while (batch.step()) {
    const PassReport& report = batch.last_pass();
    if (result.ids.size() > 1) {
      result.decode.push_back(report);
      continue;
    }
    const double before = result.prefill.seconds;  // of the prompt's earlier chunks
    result.prefill = report;
    result.prefill.seconds += before;
  }
  batch.finish();
  result.drafted = batch.drafted().tokens;
  result.accepted = batch.drafted().accepted;
  if (!fault.empty()) throw Error("{}", fault);
  result.seconds_decode = std::chrono::duration<double>(last - first).count();
  return result;
}

}  // namespace zeepo
