// The queue between clients' threads and the model's, with a tiny model.
#include "zeepo/serve/text_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/support/golden.h"

namespace zeepo {
namespace {

using namespace std::chrono_literals;

// Serves on a thread of its own until it is told to stop.
class Serving {
 public:
  Serving(std::int64_t places, const BatchLimits& limits) : queue(places), thread_([this, limits] { serve(limits); }) {}
  ~Serving() { stop(); }
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // No pass is run while this is held.
  std::unique_lock<std::mutex> hold() { return std::unique_lock(gate_); }

  TextQueue queue;
  std::atomic<std::int64_t> free_at_end{-1};

 private:
  void serve(const BatchLimits& limits) {
    const Golden golden = load_golden("golden/llama-tiny");
    Session session({.threads = 1, .device_bytes = 1 << 26});
    const auto model = make_model(golden.config);
    ModelEngine engine(*model, session.communicator(), {.use = Use::infer});
    const WeightFiles files(golden.directory);
    engine.load(stored_weights(golden.config, engine.slices(), files));
    BatchPass pass(engine, *model, DType::f32, limits);
    BatchGenerator batch(pass, golden.config, limits);
    queue.serve(
        batch,
        [this] {
          const std::lock_guard lock(gate_);
          return stopping_.load();
        },
        [] {});
    free_at_end = batch.scheduler().pool().free_pages();
  }

  std::atomic<bool> stopping_{false};
  std::mutex gate_;
  std::thread thread_;
};

TextRequest ask(std::vector<std::int32_t> prompt, std::int64_t tokens) {
  TextRequest request;
  request.prompt = std::move(prompt);
  request.options.max_new_tokens = tokens;
  return request;
}

std::vector<std::int32_t> all_of(Ticket& ticket, TextEnd& ended) {
  std::vector<std::int32_t> ids;
  for (;;) {
    const Ticket::News news = ticket.wait(1000ms);
    for (const NewToken& made : news.tokens) ids.push_back(made.token);
    if (!news.ended) continue;
    ended = *news.ended;
    EXPECT_EQ(news.failure, "");
    return ids;
  }
}

constexpr BatchLimits kLimits{.sequences = 4, .prefill_tokens = 16, .page_rows = 8, .pages = 32};

TEST(TextQueue, EveryThreadGetsItsOwnTokens) {
  Serving serving(100, kLimits);
  std::vector<std::vector<std::int32_t>> alone;
  for (std::int32_t i = 0; i < 8; ++i) {
    TextEnd ended{};
    alone.push_back(all_of(*serving.queue.submit({ask({i, 2, i}, 5 + i)}).tickets[0], ended));
    EXPECT_EQ(alone.back().size(), static_cast<std::size_t>(5 + i));
  }
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::int32_t i = 0; i < 8; ++i)
    threads.emplace_back([&, i] {
      for (int round = 0; round < 5; ++round) {
        TextEnd ended{};
        const auto ids = all_of(*serving.queue.submit({ask({i, 2, i}, 5 + i)}).tickets[0], ended);
        if (ids == alone[static_cast<std::size_t>(i)] && ended == TextEnd::length) ++right;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 40);
  serving.stop();
  EXPECT_EQ(serving.free_at_end, kLimits.pages);
  const ServeCounts counts = serving.queue.counts();
  EXPECT_EQ(counts.ended, 48);
  EXPECT_EQ(counts.first_tokens, 48);
  EXPECT_EQ(counts.running + counts.waiting + counts.abandoned + counts.refused, 0);
}

TEST(TextQueue, HasAnEndAndRefusesWhileItDrains) {
  Serving serving(3, kLimits);
  auto held = serving.hold();
  const auto accepted = serving.queue.submit({ask({1}, 4), ask({2}, 4)});
  ASSERT_EQ(accepted.tickets.size(), 2u);
  EXPECT_EQ(serving.queue.submit({ask({1}, 4), ask({2}, 4)}).refusal, TextQueue::Refusal::full);  // all or none
  EXPECT_EQ(serving.queue.submit({ask({3}, 4)}).tickets.size(), 1u);
  EXPECT_EQ(serving.queue.submit({ask({4}, 4)}).refusal, TextQueue::Refusal::full);
  serving.queue.drain();
  EXPECT_EQ(serving.queue.submit({ask({4}, 4)}).refusal, TextQueue::Refusal::draining);
  held.unlock();
  for (const auto& ticket : accepted.tickets) {  // what was accepted is finished
    TextEnd ended{};
    EXPECT_EQ(all_of(*ticket, ended).size(), 4u);
  }
}

TEST(TextQueue, AnAbandonedTextFreesItsPlace) {
  Serving serving(2, kLimits);
  {
    auto held = serving.hold();
    const auto gone = serving.queue.submit({ask({1}, 100), ask({2}, 100)});
    for (const auto& ticket : gone.tickets) ticket->abandon();
  }
  TextQueue::Submitted next;
  do next = serving.queue.submit({ask({3}, 3)});
  while (next.refusal);
  TextEnd ended{};
  EXPECT_EQ(all_of(*next.tickets[0], ended).size(), 3u);
  serving.stop();
  EXPECT_EQ(serving.free_at_end, kLimits.pages);
  EXPECT_EQ(serving.queue.counts().abandoned, 2);
}

TEST(TextQueue, WhatTheModelCannotTakeEndsWithAFailure) {
  Serving serving(2, kLimits);
  const auto submitted = serving.queue.submit({ask({-5}, 3)});
  for (;;) {
    const Ticket::News news = submitted.tickets[0]->wait(1000ms);
    if (!news.ended) continue;
    EXPECT_NE(news.failure.find("vocabulary"), std::string::npos);
    break;
  }
}

}  // namespace
}  // namespace zeepo
