#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <numeric>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/cli/batch_file.h"
#include "zeepo/cli/generate.h"
#include "zeepo/cli/inference_options.h"
#include "zeepo/infer/batch_generator.h"
#include "zeepo/train/trace_file.h"

namespace zeepo::cli {
namespace {

using Clock = std::chrono::steady_clock;

double between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// A prompt of the file and what has come of it.
struct Outcome {
  std::vector<std::int32_t> ids;
  bool done = false;
  std::string failure;
  Clock::time_point started, first, last;
};

// Prints what has ended, in the order of the file.
class Results {
 public:
  Results(const std::vector<BatchPrompt>& prompts, const Tokenizer* tokenizer, bool json)
      : prompts_(prompts), tokenizer_(tokenizer), json_(json), outcomes(prompts.size()) {}

  void print_ended() {
    for (; next_ < outcomes.size() && outcomes[next_].done; ++next_) print(next_);
    std::fflush(stdout);
  }

 private:
  void print(std::size_t i) const {
    const Outcome& outcome = outcomes[i];
    if (!outcome.failure.empty()) throw Error("{} (prompt {} of the file)", outcome.failure, i + 1);
    if (!json_) {
      const std::string text =
          tokenizer_ ? tokenizer_->decode(outcome.ids, Special::skip) : fmt::format("{}", fmt::join(outcome.ids, " "));
      fmt::print("[{}] {}\n", i + 1, text);
      return;
    }
    Timing timing;
    if (!outcome.ids.empty()) {
      timing.first_token = between(begin_, outcome.first);
      timing.prefill = between(outcome.started, outcome.first);
      const auto later = static_cast<double>(outcome.ids.size() - 1);
      if (later > 0) timing.decode_per_token = between(outcome.first, outcome.last) / later;
    }
    nlohmann::ordered_json line = result_json(outcome.ids, prompts_[i].ids.size(), timing);
    if (tokenizer_) line["text"] = tokenizer_->decode(outcome.ids, Special::skip);
    fmt::print("{}\n", line.dump());
  }

  const std::vector<BatchPrompt>& prompts_;
  const Tokenizer* tokenizer_;
  const bool json_;
  const Clock::time_point begin_ = Clock::now();
  std::size_t next_ = 0;

 public:
  std::vector<Outcome> outcomes;
};

std::vector<BatchLimits> limits_for(const std::vector<BatchPrompt>& prompts, const GenerateRequest& request, Place kv) {
  BatchLimits limits;
  limits.sequences = std::min(request.max_batch, static_cast<std::int64_t>(prompts.size()));
  limits.prefill_tokens = request.chunk_of_pages();
  limits.kv = kv;
  limits.draft_tokens = request.generate.draft_tokens;
  std::vector<std::int64_t> positions;
  for (const BatchPrompt& prompt : prompts) {
    const std::int64_t all = static_cast<std::int64_t>(prompt.ids.size()) + prompt.max_new_tokens;
    positions.push_back(limits.pages_for(all) * limits.page_rows);
  }
  std::ranges::sort(positions, std::greater());
  const std::int64_t most = std::accumulate(positions.begin(), positions.begin() + limits.sequences, std::int64_t{0});
  return limits_to_try(limits, most, positions.front());
}

// On rank 0.
Generation generate_all(BatchGenerator& batch, const std::vector<BatchPrompt>& prompts, const GenerateOptions& options,
                        Results& results) {
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    TextRequest request;
    request.prompt = prompts[i].ids;
    request.options = options;
    request.options.max_new_tokens = prompts[i].max_new_tokens;
    Outcome& outcome = results.outcomes[i];
    request.on_start = [&outcome] { outcome.started = Clock::now(); };
    request.on_token = [&outcome](const NewToken& made) {
      outcome.last = Clock::now();
      if (outcome.ids.empty()) outcome.first = outcome.last;
      outcome.ids.push_back(made.token);
      return true;
    };
    request.on_end = [&outcome](TextEnd, const std::string& failure) {
      outcome.done = true;
      outcome.failure = failure;
    };
    batch.add(std::move(request));
  }
  Generation passes;
  while (batch.step()) {
    if (batch.last_had_prompts())
      passes.prefill = batch.last_pass();
    else
      passes.decode.push_back(batch.last_pass());
    results.print_ended();
  }
  results.print_ended();
  batch.finish();
  passes.drafted = batch.drafted().tokens;
  passes.accepted = batch.drafted().accepted;
  return passes;
}

}  // namespace

void run_batch(const InferenceOptions& asked, const GenerateRequest& request, Communicator& communicator) {
  const ModelConfig config = load_config(asked.model);
  const bool speaks = communicator.rank() == 0;
  const auto tokenizer = find_usable_tokenizer(asked.model, speaks);
  const auto prompts = read_batch_file(request.batch_file, tokenizer ? &*tokenizer : nullptr, config,
                                       request.generate.max_new_tokens, speaks);
  GenerateOptions options = request.generate;
  if (!request.ignore_eos) options.stop = config.eos;

  std::optional<TraceFile> traced;
  InferenceOptions where = asked;
  if (!request.trace.empty()) where.timeline = &traced.emplace(request.trace, communicator).timeline();

  const std::vector<BatchLimits> all_limits = limits_for(prompts, request, where.kv);
  Inference inference(where, communicator, rehearsals(where, all_limits));
  const BatchLimits& limits = all_limits[inference.planned()];
  if (speaks && (where.choose.params || where.choose.prefetch))
    say("placement chosen: {}\n", placement_flags(inference.plan().options));
  tell_of_copies(inference, communicator);

  const auto start = Clock::now();
  Generation passes;
  std::int64_t tokens = 0;
  {
    BatchPass pass(inference.engine(), inference.model(), kv_dtype(where), limits);
    if (speaks) {
      BatchGenerator batch(pass, config, limits);
      Results results(prompts, tokenizer ? &*tokenizer : nullptr, request.json);
      passes = generate_all(batch, prompts, options, results);
      for (const Outcome& outcome : results.outcomes) tokens += static_cast<std::int64_t>(outcome.ids.size());
    } else {
      passes.prefill = pass.follow();
    }
    if (where.timeline) where.timeline->end_steps();
    inference.engine().settle();
  }
  const double seconds = between(start, Clock::now());
  nlohmann::ordered_json summary = generation_summary(inference, passes);
  const double rate = seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
  if (speaks && request.json) {
    summary["sequences"] = prompts.size();
    summary["tokens"] = tokens;
    summary["tokens_per_second"] = rate;
    summary["kv_cache"] = {{"positions", limits.positions()}, {"page", limits.page_rows}};
    fmt::print("{}\n", summary.dump());
  } else if (speaks) {
    say("{} prompts, {} tokens: {:.1f} tokens/s\n", prompts.size(), tokens, rate);
  }
  if (traced) traced->write();  // last: what has been generated is not lost where it cannot be written
}

}  // namespace zeepo::cli
