// Which sequences run in the next pass, and which tokens of them: continuous batching.
//
// Sequences join when there is a place and the KV cache has pages for all that they may become, in the order in which
// they came; they leave when they end, and their pages are free at once. A pass has the last token of every sequence
// that is past its prompt, and up to so many tokens of prompts. It has a row of logits for each sequence that may run:
// prompts of which every row is wanted share what the others leave. Pure: it computes nothing, so that a test can try
// all.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "zeepo/infer/batch_step.h"
#include "zeepo/infer/page_pool.h"

namespace zeepo {

// Of which tokens of a prompt the logits are wanted.
enum class PromptLogits { last, all };

class Scheduler {
 public:
  // Throws Error for limits that let nothing run.
  explicit Scheduler(const BatchLimits& limits);

  // Waits for a place. `sequence` names it from now on. Throws Error where even all pages would be too few.
  void add(std::uint64_t sequence, std::vector<std::int32_t> prompt, std::int64_t new_tokens,
           PromptLogits wanted = PromptLogits::last);
  // The next pass; no parts when there is nothing to run. `another` says whether the sequences of the pass, or others
  // that wait, go on after it. What it names is taken as done.
  BatchStep next();
  // The token that the pass has given to a sequence whose logits were wanted.
  void continue_with(std::uint64_t sequence, std::int32_t token);
  // So many of the tokens that were drafted for it in the last pass are its next ones: they need not be run again.
  void accept(std::uint64_t sequence, std::int64_t drafted);
  // It has ended, or nobody wants it any more. Nothing happens where it is not known.
  void end(std::uint64_t sequence);

  // Pages of the longest that a sequence of so many tokens can become.
  std::int64_t pages_for(std::int64_t prompt_tokens, std::int64_t new_tokens) const;
  std::int64_t running() const { return static_cast<std::int64_t>(running_.size()); }
  std::int64_t waiting() const { return static_cast<std::int64_t>(waiting_.size()); }
  const PagePool& pool() const { return pool_; }

 private:
  struct Sequence {
    std::uint64_t name;
    std::vector<std::int32_t> ids;  // that have not been run
    std::int64_t past, new_tokens;
    bool scored;  // its prompt is being read, and every row of logits is wanted
    std::vector<std::int32_t> pages;
  };
  void admit();
  // Throws Error where the sequence waits for no token.
  Sequence& waiting_for_token(std::uint64_t sequence);

  BatchLimits limits_;
  PagePool pool_;
  std::deque<Sequence> waiting_;
  std::vector<Sequence> running_;  // in the order in which they came
};

}  // namespace zeepo
