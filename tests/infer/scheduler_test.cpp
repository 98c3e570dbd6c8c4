// Continuous batching by a model that is not there: whatever comes and goes, every sequence has all of its tokens run
// once, in order, in pages of its own.
#include "zeepo/infer/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <set>

#include "tests/support/errors.h"
#include "zeepo/base/rng.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;

Ids prompt_of(std::int64_t tokens) {
  Ids ids(static_cast<std::size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

BatchLimits limits(std::int64_t sequences, std::int64_t prefill, std::int64_t pages) {
  return {.sequences = sequences, .prefill_tokens = prefill, .page_rows = 4, .pages = pages};
}

TEST(Scheduler, CarriesDecodingAndAChunkOfAPromptTogether) {
  Scheduler scheduler(limits(4, 5, 20));
  scheduler.add(7, prompt_of(2), 10);
  BatchStep step = scheduler.next();
  ASSERT_EQ(step.parts.size(), 1u);
  EXPECT_TRUE(step.parts[0].wants_logits);
  EXPECT_TRUE(step.another);
  scheduler.continue_with(7, 50);
  scheduler.add(8, prompt_of(8), 10);
  step = scheduler.next();
  ASSERT_EQ(step.parts.size(), 2u);
  EXPECT_EQ(step.parts[0].ids, (Ids{50}));
  EXPECT_EQ(step.parts[0].past, 2);
  EXPECT_EQ(step.parts[1].ids, prompt_of(5));
  EXPECT_FALSE(step.parts[1].wants_logits);
  EXPECT_EQ(step.tokens(), 6);
  scheduler.continue_with(7, 51);
  step = scheduler.next();
  EXPECT_EQ(step.parts[1].ids, (Ids{5, 6, 7}));
  EXPECT_EQ(step.parts[1].past, 5);
  EXPECT_TRUE(step.parts[1].wants_logits);
}

// Tokens that a draft had right have been run with the pass that checked them.
TEST(Scheduler, GoesOnAfterTheDraftedTokensThatWereRight) {
  Scheduler scheduler(limits(4, 5, 20));
  scheduler.add(7, prompt_of(2), 6);
  (void)scheduler.next();
  scheduler.continue_with(7, 50);
  (void)scheduler.next();
  scheduler.accept(7, 2);
  scheduler.continue_with(7, 53);
  BatchStep step = scheduler.next();
  ASSERT_EQ(step.parts.size(), 1u);
  EXPECT_EQ(step.parts[0].ids, (Ids{53}));
  EXPECT_EQ(step.parts[0].past, 5);
  EXPECT_TRUE(step.another);  // four tokens are chosen, this pass gives the fifth
  EXPECT_TRUE(names(error_text([&] { scheduler.accept(7, 2); }), "2 drafted tokens"));
  scheduler.continue_with(7, 54);
  EXPECT_TRUE(names(error_text([&] { scheduler.accept(7, 1); }), "waits for none"));
  EXPECT_FALSE(scheduler.next().another);
}

// Rows of logits are as many as sequences that may run.
TEST(Scheduler, PromptsOfWhichEveryRowIsWantedShareWhatOthersLeave) {
  Scheduler scheduler(limits(4, 50, 20));
  scheduler.add(1, prompt_of(2), 10);
  scheduler.add(2, prompt_of(7), 3, PromptLogits::all);
  scheduler.add(3, prompt_of(2), 3, PromptLogits::all);
  const auto rows = [](const BatchStep& step) {
    std::vector<std::int64_t> wanted;
    for (const BatchPart& part : step.parts) wanted.push_back(part.logit_rows());
    return wanted;
  };
  using Rows = std::vector<std::int64_t>;
  EXPECT_EQ(rows(scheduler.next()), (Rows{1, 3}));  // the third waits
  scheduler.continue_with(1, 50);
  EXPECT_EQ(rows(scheduler.next()), (Rows{1, 3}));
  scheduler.continue_with(1, 51);
  const BatchStep third = scheduler.next();
  EXPECT_EQ(rows(third), (Rows{1, 1, 2}));
  EXPECT_EQ(third.parts[1].past, 6);
  EXPECT_TRUE(third.parts[1].scored && third.parts[1].wants_logits);
  for (const std::uint64_t sequence : {1, 2, 3}) scheduler.continue_with(sequence, 60);
  const BatchStep decoding = scheduler.next();
  EXPECT_EQ(rows(decoding), (Rows{1, 1, 1}));
  EXPECT_FALSE(decoding.parts[1].scored);
}

TEST(Scheduler, AdmitsByPagesInTheOrderOfComing) {
  Scheduler scheduler(limits(8, 100, 5));  // 20 positions
  scheduler.add(1, prompt_of(8), 5);       // 12 positions: the last token is not run
  scheduler.add(2, prompt_of(8), 5);
  scheduler.add(3, prompt_of(1), 1);  // would fit, but came later
  EXPECT_EQ(scheduler.next().parts.size(), 1u);
  EXPECT_EQ(scheduler.waiting(), 2);
  EXPECT_EQ(scheduler.pool().free_pages(), 2);
  scheduler.end(1);
  EXPECT_EQ(scheduler.next().parts.size(), 2u);
  EXPECT_EQ(scheduler.waiting(), 0);
}

TEST(Scheduler, TheLastPassOfAllIsKnown) {
  Scheduler scheduler(limits(2, 100, 10));
  scheduler.add(1, prompt_of(3), 2);
  EXPECT_TRUE(scheduler.next().another);
  scheduler.continue_with(1, 9);
  EXPECT_FALSE(scheduler.next().another);
  scheduler.end(1);
  EXPECT_TRUE(scheduler.next().parts.empty());
}

TEST(Scheduler, WhoLeavesWhileWaitingOrRunningFreesItsPlace) {
  Scheduler scheduler(limits(1, 100, 10));
  scheduler.add(1, prompt_of(3), 2);
  scheduler.add(2, prompt_of(3), 2);
  scheduler.add(3, prompt_of(3), 2);
  EXPECT_EQ(scheduler.next().parts[0].sequence, 1u);
  scheduler.end(2);
  scheduler.end(1);
  EXPECT_EQ(scheduler.next().parts[0].sequence, 3u);
  scheduler.end(3);
  scheduler.end(3);
  EXPECT_EQ(scheduler.pool().free_pages(), 10);
}

TEST(Scheduler, WhatCanNeverRunIsRefused) {
  Scheduler scheduler(limits(1, 100, 2));
  EXPECT_TRUE(names(error_text([&] { scheduler.add(1, prompt_of(8), 2); }), "8 prompt tokens and 2", "8 positions"));
  EXPECT_TRUE(names(error_text([&] { scheduler.add(1, {}, 2); }), "no tokens"));
  scheduler.add(1, prompt_of(8), 1);
  EXPECT_TRUE(names(error_text([&] { scheduler.continue_with(1, 5); }), "waits for none"));
  EXPECT_TRUE(names(error_text([] { Scheduler none(limits(1, 0, 2)); }), "at least 1"));
}

// A model that gives token = 1000 + position, and remembers what each page row holds.
TEST(Scheduler, EverySequenceRunsAllItsTokensInPagesOfItsOwn) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    const RngKey key{seed};
    std::uint64_t draws = 0;
    const auto draw = [&](std::int64_t most) {
      return 1 + static_cast<std::int64_t>(uniform(key, draws++) * static_cast<float>(most));
    };
    const BatchLimits all = limits(draw(5), draw(9), 4 + draw(20));
    Scheduler scheduler(all);
    struct Want {
      Ids ids;
      std::int64_t new_tokens;
      Ids made = {};
    };
    std::map<std::uint64_t, Want> wants;
    std::map<std::int64_t, std::pair<std::uint64_t, std::int64_t>> rows;  // of the pool: whose, which position
    std::uint64_t next = 0;
    std::int64_t ended = 0;
    for (int round = 0; round < 400 && (ended < 25 || !wants.empty()); ++round) {
      if (next < 25 && draw(3) == 1) {
        const std::int64_t prompt = draw(12), more = draw(8);
        if (scheduler.pages_for(prompt, more) <= all.pages) {
          scheduler.add(next, prompt_of(prompt), more);
          wants[next] = {prompt_of(prompt), more};
        } else {
          ++ended;
        }
        ++next;
      }
      const BatchStep step = scheduler.next();
      EXPECT_LE(step.parts.size(), static_cast<std::size_t>(all.sequences));
      std::int64_t of_prompts = 0;
      for (const BatchPart& part : step.parts) {
        Want& want = wants.at(part.sequence);
        if (part.past == 0 || part.ids.size() > 1) of_prompts += static_cast<std::int64_t>(part.ids.size());
        for (std::size_t i = 0; i < part.ids.size(); ++i) {
          const std::int64_t position = part.past + static_cast<std::int64_t>(i);
          ASSERT_EQ(part.ids[i], want.ids.at(static_cast<std::size_t>(position)));
          rows[part.pages.at(static_cast<std::size_t>(position / 4)) * 4 + position % 4] = {part.sequence, position};
        }
        // All that came before is still there.
        const std::int64_t length = part.past + static_cast<std::int64_t>(part.ids.size());
        for (std::int64_t p = 0; p < length; ++p)
          ASSERT_EQ(rows.at(part.pages.at(static_cast<std::size_t>(p / 4)) * 4 + p % 4),
                    (std::pair<std::uint64_t, std::int64_t>{part.sequence, p}));
        ASSERT_EQ(part.wants_logits, length == static_cast<std::int64_t>(want.ids.size()));
        if (!part.wants_logits) continue;
        const auto token = static_cast<std::int32_t>(1000 + length);
        want.ids.push_back(token);
        want.made.push_back(token);
        const bool gone = draw(15) == 1;
        if (gone || static_cast<std::int64_t>(want.made.size()) == want.new_tokens) {
          scheduler.end(part.sequence);
          wants.erase(part.sequence);
          ++ended;
        } else {
          scheduler.continue_with(part.sequence, token);
        }
      }
      EXPECT_LE(of_prompts, all.prefill_tokens);
    }
    EXPECT_EQ(ended, 25);
    EXPECT_EQ(scheduler.running() + scheduler.waiting(), 0);
    EXPECT_EQ(scheduler.pool().free_pages(), all.pages);
  }
}

TEST(BatchStep, TravelsAsNumbers) {
  BatchStep step;
  step.another = step.asks = true;
  step.parts.push_back({5, 17, {1, 2, 3}, {9, 4}, true});
  step.parts.push_back({6, 0, {8}, {}, false});
  step.parts.push_back({7, 3, {4, 5, 6}, {1}, true, 2});
  const auto numbers = numbers_of(step);
  const BatchStep read = step_of(numbers);
  EXPECT_TRUE(read.another);
  EXPECT_FALSE(read.over);
  EXPECT_TRUE(read.asks);
  ASSERT_EQ(read.parts.size(), 3u);
  EXPECT_EQ(read.parts[0].past, 17);
  EXPECT_EQ(read.parts[0].ids, (Ids{1, 2, 3}));
  EXPECT_EQ(read.parts[0].pages, (Ids{9, 4}));
  EXPECT_TRUE(read.parts[0].wants_logits);
  EXPECT_FALSE(read.parts[1].wants_logits);
  EXPECT_EQ(read.parts[2].drafted, 2);
  EXPECT_EQ(read.parts[2].logit_rows(), 3);
  BatchStep odd;
  odd.parts.push_back({1, 0, {1}, {0}, true, 1});
  EXPECT_TRUE(names(error_text([&] { step_of(numbers_of(odd)); }), "2 rows of logits of 1 tokens"));
  for (std::size_t cut = 0; cut < numbers.size(); ++cut)
    EXPECT_TRUE(names(error_text([&] { step_of(std::span(numbers).first(cut)); }), "ends too early"));
}

}  // namespace
}  // namespace zeepo
