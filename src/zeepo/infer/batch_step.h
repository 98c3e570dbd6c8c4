// One pass of many sequences: what rank 0 decides, and every rank runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "zeepo/memory/tier.h"

namespace zeepo {

// What a batch may use at a time.
struct BatchLimits {
  std::int64_t sequences = 32;        // in a pass
  std::int64_t prefill_tokens = 512;  // of prompts in a pass; longer prompts take several
  std::int64_t page_rows = 32;        // positions of a page of the KV cache
  std::int64_t pages = 0;
  Place kv = Place::device;  // where the pages live: there, or in host memory
  // Tokens that are drafted for a sequence at a time, where the engine keeps a draft of the weights; and for all of
  // them in a pass, which they share evenly.
  std::int64_t draft_tokens = 0, drafted_at_once = 64;

  std::int64_t positions() const { return pages * page_rows; }
  std::int64_t pages_for(std::int64_t positions) const { return (positions + page_rows - 1) / page_rows; }
};

// A sequence's part in a pass.
struct BatchPart {
  std::uint64_t sequence = 0;  // rank 0's name for it; not told to the others
  std::int64_t past = 0;       // positions that the cache holds
  std::vector<std::int32_t> ids = {};
  std::vector<std::int32_t> pages = {};
  bool wants_logits = false;  // of its last token, and of as many before it as are drafted
  std::int64_t drafted = 0;   // how many of the ids, the last ones, a draft has chosen
  bool scored = false;        // of a prompt: the logits of all its ids are wanted

  std::int64_t logit_rows() const {
    return scored ? static_cast<std::int64_t>(ids.size()) : wants_logits ? drafted + 1 : 0;
  }
  std::int64_t undrafted() const { return static_cast<std::int64_t>(ids.size()) - drafted; }
};

struct BatchStep {
  std::vector<BatchPart> parts;  // none: nothing to run now
  bool another = false;          // a pass is expected to follow
  bool over = false;             // the batch has ended: no step follows
  bool asks = false;             // before it runs, the ranks tell each other of signals

  std::int64_t tokens() const;
};

// A step as numbers, and back. Throws Error when they are not a step's.
std::vector<std::int32_t> numbers_of(const BatchStep& step);
BatchStep step_of(std::span<const std::int32_t> numbers);

}  // namespace zeepo
