#include "zeepo/infer/scheduler.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {

Scheduler::Scheduler(const BatchLimits& limits) : limits_(limits), pool_(limits.pages) {
  if (limits.sequences < 1 || limits.prefill_tokens < 1 || limits.page_rows < 1 || limits.pages < 1)
    throw Error("batch: {} sequences, {} tokens of prompts, {} pages of {} positions: each must be at least 1",
                limits.sequences, limits.prefill_tokens, limits.pages, limits.page_rows);
}

// The last token is chosen and not run.
std::int64_t Scheduler::pages_for(std::int64_t prompt_tokens, std::int64_t new_tokens) const {
  return limits_.pages_for(prompt_tokens + std::max<std::int64_t>(new_tokens, 1) - 1);
}

void Scheduler::add(std::uint64_t sequence, std::vector<std::int32_t> prompt, std::int64_t new_tokens,
                    PromptLogits wanted) {
  const auto tokens = static_cast<std::int64_t>(prompt.size());
  if (prompt.empty()) throw Error("batch: sequence {} has no tokens", sequence);
  if (pages_for(tokens, new_tokens) > pool_.pages())
    throw Error("batch: {} prompt tokens and {} new ones, but the KV cache holds {} positions", tokens, new_tokens,
                limits_.positions());
  waiting_.push_back({sequence, std::move(prompt), 0, new_tokens, wanted == PromptLogits::all, {}});
}

void Scheduler::admit() {
  while (!waiting_.empty() && running() < limits_.sequences) {
    Sequence& next = waiting_.front();
    auto pages = pool_.take(pages_for(static_cast<std::int64_t>(next.ids.size()), next.new_tokens));
    if (!pages) return;
    next.pages = std::move(*pages);
    running_.push_back(std::move(next));
    waiting_.pop_front();
  }
}

BatchStep Scheduler::next() {
  admit();
  BatchStep step;
  std::int64_t room = limits_.prefill_tokens;
  std::int64_t rows = limits_.sequences - std::ranges::count(running_, false, &Sequence::scored);
  for (Sequence& sequence : running_) {
    const bool decodes = sequence.past > 0 && sequence.ids.size() == 1 && !sequence.scored;
    const auto left = static_cast<std::int64_t>(sequence.ids.size());
    const std::int64_t count = decodes ? 1 : std::min({left, room, sequence.scored ? rows : room});
    if (count == 0) continue;
    if (!decodes) room -= count;
    if (sequence.scored) rows -= count;
    const auto end = sequence.ids.begin() + static_cast<std::ptrdiff_t>(count);
    step.parts.push_back({sequence.name, sequence.past, {sequence.ids.begin(), end}, sequence.pages, count == left});
    step.parts.back().scored = sequence.scored;
    sequence.ids.erase(sequence.ids.begin(), end);
    sequence.past += count;
    if (count == left) {
      --sequence.new_tokens;
      sequence.scored = false;
    }
    step.another |= sequence.new_tokens > 0;
  }
  step.another |= !step.parts.empty() && (!waiting_.empty() || running_.size() > step.parts.size());
  return step;
}

Scheduler::Sequence& Scheduler::waiting_for_token(std::uint64_t sequence) {
  const auto found = std::ranges::find(running_, sequence, &Sequence::name);
  if (found == running_.end() || !found->ids.empty())
    throw Error("batch: a token for sequence {}, which waits for none", sequence);
  return *found;
}

void Scheduler::continue_with(std::uint64_t sequence, std::int32_t token) {
  waiting_for_token(sequence).ids.push_back(token);
}

void Scheduler::accept(std::uint64_t sequence, std::int64_t drafted) {
  Sequence& one = waiting_for_token(sequence);
  if (drafted < 0 || drafted > one.new_tokens)
    throw Error("batch: {} drafted tokens for sequence {}, which may have {} more", drafted, sequence, one.new_tokens);
  one.past += drafted;
  one.new_tokens -= drafted;
}

void Scheduler::end(std::uint64_t sequence) {
  std::erase_if(waiting_, [&](const Sequence& one) { return one.name == sequence; });
  const auto found = std::ranges::find(running_, sequence, &Sequence::name);
  if (found == running_.end()) return;
  pool_.give_back(found->pages);
  running_.erase(found);
}

}  // namespace zeepo
