// Many texts at once from one model: requests come and go between passes.
//
// Tokens and logits of a request are those of the request alone: on a CPU to the bit, whatever else is in the batch.
// Lives on rank 0, on the rank's thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "zeepo/infer/batch_pass.h"
#include "zeepo/infer/sampling.h"
#include "zeepo/infer/scheduler.h"

namespace zeepo {

// A token with the natural logarithm of its probability, as the model gives it: before temperature and the like.
struct LikelyToken {
  std::int32_t token = 0;
  float log_probability = 0;
};

struct NewToken {
  std::int32_t token = 0;
  std::uint64_t number = 0;                   // from 0; of a prompt's token its place there
  float log_probability = 0;                  // where likelihoods are wanted
  std::vector<LikelyToken> most_likely = {};  // the most likely first
};

enum class TextEnd { stop, length, unwanted };

struct TextRequest {
  std::vector<std::int32_t> prompt;
  GenerateOptions options;
  int likelihoods = -1;  // how many most likely tokens each token comes with; -1: not even its own likelihood
  // Every token of the prompt but the first comes with them too: before the first new token, to on_prompt.
  bool scores_prompt = false;
  std::function<void(const NewToken&)> on_prompt = [](const NewToken&) {};
  // Its first tokens are about to run.
  std::function<void()> on_start = [] {};
  // False: wants no more; it ends as unwanted.
  std::function<bool(const NewToken&)> on_token = [](const NewToken&) { return true; };
  // The request has ended; on_token is not called again. The message is empty unless it failed.
  std::function<void(TextEnd, const std::string& failure)> on_end = [](TextEnd, const std::string&) {};
};

// The n most likely tokens, lower ids first among equals, and the log-probability of one.
float log_probability(std::span<const float> logits, std::int32_t token);
std::vector<LikelyToken> most_likely(std::span<const float> logits, int n);

class BatchGenerator {
 public:
  // Borrows the pass.
  BatchGenerator(BatchPass& pass, const ModelConfig& config, const BatchLimits& limits);

  // Throws Error for a prompt that the model or the KV cache has no room for: nothing has changed then.
  std::uint64_t add(TextRequest request);
  // Ends it without another call.
  void drop(std::uint64_t request);
  // Whether it has not ended.
  bool knows(std::uint64_t request) const { return requests_.contains(request); }
  // One pass. False: there is nothing to run. A request whose logits are no numbers ends with a failure, and harms no
  // other.
  bool step();
  // Tells the other ranks that no step follows.
  void finish();
  // Keeps the other ranks waiting: there is nothing to do now.
  void idle();

  const Scheduler& scheduler() const { return scheduler_; }
  // Of the last pass, and whether it had a part of a prompt.
  const PassReport& last_pass() const { return last_pass_; }
  bool last_had_prompts() const { return last_had_prompts_; }
  // Tokens that were drafted so far, and that were right.
  struct Drafted {
    std::int64_t tokens = 0, accepted = 0;
  };
  const Drafted& drafted() const { return drafted_; }
  // Tokens that it ran, and that it made.
  std::int64_t last_tokens() const { return last_tokens_; }
  std::int64_t last_new_tokens() const { return last_new_tokens_; }

 private:
  struct Running {
    TextRequest request;
    std::uint64_t tokens = 0;
    std::int64_t draft_tokens = 0;  // of the next pass, at most
  };
  // Adds drafted tokens to the parts that have come to the end of their text.
  void draft(BatchStep& step);
  // One more token of a draft. False: the draft ends with it, or before it.
  static bool add_draft(const Running& running, std::span<const float> logits, BatchPart& part);
  void take(const BatchPart& part, std::span<const float> logits);
  void take_scored(const BatchPart& part, std::span<const float> logits);
  // The next token, unless that has ended the request.
  std::optional<std::int32_t> take_token(std::uint64_t name, std::span<const float> logits);
  void end(std::uint64_t name, TextEnd why, const std::string& failure = "");

  BatchPass& pass_;
  const ModelConfig& config_;
  BatchLimits limits_;
  Scheduler scheduler_;
  std::map<std::uint64_t, Running> requests_;
  std::uint64_t next_name_ = 0;
  PassReport last_pass_;
  bool last_had_prompts_ = false;
  Drafted drafted_;
  std::int64_t last_tokens_ = 0, last_new_tokens_ = 0;
};

// One text through a batch of its own, on rank 0: what generate() does, with all that pages can do.
Generation generate_in_pages(BatchPass& pass, const ModelConfig& config, const BatchLimits& limits,
                             std::span<const std::int32_t> prompt, const GenerateOptions& options,
                             const std::function<void(std::int32_t)>& on_token);
// Pages for one text, read in chunks.
BatchLimits limits_of_one(std::size_t prompt_tokens, std::int64_t new_tokens, std::int64_t prefill_tokens);

}  // namespace zeepo
