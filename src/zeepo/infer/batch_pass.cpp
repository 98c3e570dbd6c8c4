#include "zeepo/infer/batch_pass.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <set>
#include <string>

#include "zeepo/base/stop_request.h"
#include "zeepo/base/timeline.h"
#include "zeepo/tensor/device.h"
#include "zeepo/zero/rank_talk.h"

namespace zeepo {
namespace {

constexpr std::size_t kFrame = 2048;  // numbers that the ranks are told at a time: always as many, for the plan

// All ranks but the first only follow, and have no other way to say that they are to end.
constexpr std::chrono::milliseconds kBetweenQuestions{100};

// The largest pass of so many sequences: one of them as long as can be, with its last `rows` tokens and scattered
// pages.
BatchStep largest_step(const ModelConfig& config, const BatchLimits& limits, std::int64_t sequences,
                       std::int64_t rows) {
  const std::int64_t longest = std::min(limits.positions(), config.max_positions);
  rows = std::min(rows, longest);
  std::vector<std::int32_t> pages(static_cast<std::size_t>(limits.pages_for(longest)));
  std::iota(pages.rbegin(), pages.rend(), 0);
  BatchStep step;
  step.another = true;
  step.parts.push_back({0, longest - rows, std::vector<std::int32_t>(static_cast<std::size_t>(rows), 0), pages, true});
  for (std::int64_t i = 1; i < sequences; ++i) step.parts.push_back({0, longest - 1, {0}, pages, true});
  return step;
}

}  // namespace

BatchPass::BatchPass(ModelEngine& engine, LanguageModel& model, DType dtype, const BatchLimits& limits)
    : engine_(engine), model_(model), pages_(model.config(), limits.pages, limits.page_rows, dtype, limits.kv) {}

BatchPass::Result BatchPass::lead(const BatchStep& step) {
  const Began began = begin();
  return run(agree(step), began);
}

PassReport BatchPass::follow() {
  PassReport last;
  for (;;) {
    const BatchStep step = agree({});
    if (step.over) return last;
    if (!step.parts.empty()) last = run(step, begin()).report;
  }
}

bool BatchPass::told_to_end() const { return others_end_ || StopRequest::signal() != 0; }

void BatchPass::hear_of_signals() {
  float signals = StopRequest::signal() != 0 ? 1 : 0;
  sum_over_ranks(engine_.collectives(), {&signals, 1});
  if (!Device::current().compute.dry()) others_end_ = signals > 0;
}

BatchStep BatchPass::agree(BatchStep step) {
  if (engine_.collectives().alone()) return step;
  const bool leads = engine_.collectives().rank() == 0, dry = Device::current().compute.dry();
  if (const auto now = std::chrono::steady_clock::now(); leads && (dry || now - asked_ >= kBetweenQuestions)) {
    asked_ = now;
    step.asks = true;
  }
  std::vector<std::int32_t> numbers = leads ? numbers_of(step) : std::vector<std::int32_t>();
  std::array<std::int32_t, kFrame> frame{static_cast<std::int32_t>(numbers.size())};
  std::size_t told = 0, first = 1;
  do {
    const std::size_t count = leads ? std::min(kFrame - first, numbers.size() - told) : 0;
    std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(told), count, frame.begin() + first);
    tell_all(engine_.collectives(), frame);
    if (!leads && first == 1) numbers.resize(static_cast<std::size_t>(std::max(0, frame[0])));
    const std::size_t here = std::min(kFrame - first, numbers.size() - told);
    std::copy_n(frame.begin() + first, here, numbers.begin() + static_cast<std::ptrdiff_t>(told));
    told += here;
    first = 0;
  } while (told < numbers.size());
  if (!leads && !dry) step = step_of(numbers);
  if (step.asks || dry) hear_of_signals();
  return step;
}

std::vector<float> BatchPass::logits_of(const BatchStep& step) {
  std::vector<std::int32_t> ids;
  std::vector<PagedSequence> sequences;
  std::vector<std::int64_t> rows;
  for (const BatchPart& part : step.parts) {
    ids.insert(ids.end(), part.ids.begin(), part.ids.end());
    sequences.push_back({part.past, static_cast<std::int64_t>(part.ids.size()), part.pages});
    for (std::int64_t back = part.logit_rows(); back > 0; --back)
      rows.push_back(static_cast<std::int64_t>(ids.size()) - back);
  }
  const bool wanted = !rows.empty();
  if (!wanted) rows.push_back(0);  // every pass visits the head: what is fetched ahead is always the same
  const Tensor input = Tensor::from<std::int32_t>(ids, {1, static_cast<std::int64_t>(ids.size())});
  const Tensor logits = model_.logits(input, pages_, sequences, rows);
  if (wanted && engine_.collectives().rank() == 0) return logits.to_floats();
  Device::current().compute.synchronize();
  return {};
}

std::vector<float> BatchPass::draft(const BatchStep& step) {
  std::vector<float> logits;
  engine_.infer_draft([&] { logits = logits_of(step); }, step.another ? Engine::Then::another : Engine::Then::nothing);
  return logits;
}

BatchPass::Result BatchPass::run(const BatchStep& step, const Began& began) {
  if (step.parts.empty()) return {};
  Timeline* const timeline = Device::current().timeline;
  const std::string number = std::to_string(++passes_);
  if (timeline) timeline->begin_step(passes_);
  const Span span(timeline, TimelineRow::steps, "pass", {number});
  const MovedBytes before = engine_.moved().in_time;
  Result result;
  engine_.infer([&] { result.logits = logits_of(step); }, step.another ? Engine::Then::another : Engine::Then::nothing);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began.at).count();
  result.report = {seconds, engine_.stalls() - began.stalled, engine_.moved().in_time - before};
  return result;
}

std::vector<BatchLimits> limits_to_try(BatchLimits limits, std::int64_t most, std::int64_t least) {
  std::vector<BatchLimits> all;
  const std::int64_t least_pages = std::max<std::int64_t>(1, limits.pages_for(least));
  for (limits.pages = limits.pages_for(most); limits.pages > least_pages; limits.pages /= 2) all.push_back(limits);
  limits.pages = least_pages;
  all.push_back(limits);
  return all;
}

namespace {

std::int64_t drafted_for_each(const BatchLimits& limits, std::int64_t sequences) {
  return std::min(limits.draft_tokens, limits.drafted_at_once / sequences);
}

// How many sequences draft the most tokens together: not always as many as may, since they share whole tokens.
std::int64_t sequences_that_draft_most(const BatchLimits& limits) {
  std::int64_t best = 1;
  for (std::int64_t n = 2; n <= std::min(limits.sequences, limits.drafted_at_once); ++n)
    if (n * drafted_for_each(limits, n) > best * drafted_for_each(limits, best)) best = n;
  return best;
}

// Drafts of one sequence, of many and of those that draft the most, and the passes that check them beside prompts.
void rehearse_drafts(BatchPass& pass, const ModelConfig& config, const BatchLimits& limits) {
  const std::int64_t many = std::min(limits.sequences, limits.drafted_at_once);
  for (const std::int64_t sequences : std::set{std::int64_t{1}, sequences_that_draft_most(limits), many}) {
    BatchStep drafts = largest_step(config, limits, sequences, 1);
    for (const bool more : {false, true}) {
      drafts.another = more;
      (void)pass.draft(drafts);
    }
    BatchStep checks = largest_step(config, limits, limits.sequences, limits.prefill_tokens);
    for (std::int64_t i = 0; i < sequences; ++i) {
      BatchPart& part = checks.parts[checks.parts.size() - 1 - static_cast<std::size_t>(i)];
      part.drafted = std::min(drafted_for_each(limits, sequences), part.past);
      part.past -= part.drafted;
      part.ids.resize(part.ids.size() + static_cast<std::size_t>(part.drafted));
    }
    (void)pass.lead(checks);
  }
}

}  // namespace

// Passes are of many sizes, and their tensors leave gaps of many sizes: the plan has some room for that.
void rehearse(ModelEngine& engine, LanguageModel& model, DType dtype, const BatchLimits& limits) {
  BatchPass pass(engine, model, dtype, limits);
  const std::int64_t most = limits.sequences, prompt = limits.prefill_tokens;
  const bool drafts = pass.drafts() && limits.draft_tokens > 0;
  const Tensor gaps({most + prompt + (drafts ? limits.drafted_at_once : 0), 2, model.config().hidden}, dtype);
  const std::pair<std::int64_t, std::int64_t> sizes[] = {
      {most, prompt}, {most, 1}, {1, 1}, {(most + 1) / 2, (prompt + 1) / 2}, {1, prompt}, {most, prompt}, {most, 1}};
  for (const auto& [sequences, rows] : sizes) (void)pass.lead(largest_step(model.config(), limits, sequences, rows));
  if (limits.kv == Place::host) {  // short sequences that fill a block of what is fetched together
    const std::int64_t length = std::max<std::int64_t>(1, kHostBlockPositions / most);
    BatchStep step = largest_step(model.config(), limits, most, 1);
    for (BatchPart& part : step.parts) part.past = std::min(part.past, length - 1);
    (void)pass.lead(step);
  }
  if (drafts) rehearse_drafts(pass, model.config(), limits);
}

std::vector<InferenceWork> rehearsals(const InferenceOptions& options, const std::vector<BatchLimits>& limits) {
  std::vector<InferenceWork> works;
  for (const BatchLimits& tried : limits)
    works.emplace_back([options, tried](ModelEngine& engine, LanguageModel& model) {
      rehearse(engine, model, kv_dtype(options, engine), tried);
    });
  return works;
}

}  // namespace zeepo
