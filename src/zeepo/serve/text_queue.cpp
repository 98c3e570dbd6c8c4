#include "zeepo/serve/text_queue.h"

#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::chrono::milliseconds kIdle{100};  // between two looks at what no notice comes of

}  // namespace

Ticket::News Ticket::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, most, [this] { return !news_.tokens.empty() || news_.ended; });
  return std::exchange(news_, {});
}

void Ticket::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
}

void Ticket::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = abandoned_ = true;
}

TextQueue::Submitted TextQueue::submit(std::vector<TextRequest> requests) {
  const std::lock_guard lock(mutex_);
  const auto count = static_cast<std::int64_t>(requests.size());
  if (draining_ || known_ + count > places_) {
    ++counts_.refused;
    return {{}, draining_ ? Refusal::draining : Refusal::full};
  }
  known_ += count;
  Submitted submitted;
  for (TextRequest& request : requests) {
    submitted.tickets.push_back(std::make_shared<Ticket>());
    inbox_.push_back({std::move(request), submitted.tickets.back(), std::chrono::steady_clock::now()});
  }
  changed_.notify_one();
  return submitted;
}

void TextQueue::begin(BatchGenerator& batch, Incoming incoming) {
  const auto ticket = incoming.ticket;
  const auto prompt_tokens = static_cast<std::int64_t>(incoming.request.prompt.size());
  incoming.request.on_token = [this, ticket, came = incoming.came](const NewToken& made) {
    if (made.number == 0) {
      const std::lock_guard lock(mutex_);
      counts_.first_token_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - came).count();
      ++counts_.first_tokens;
    }
    const std::lock_guard lock(ticket->mutex_);
    ticket->news_.tokens.push_back(made);
    ticket->changed_.notify_one();
    return !ticket->abandoned_;
  };
  incoming.request.on_prompt = [ticket](const NewToken& token) {
    const std::lock_guard lock(ticket->mutex_);
    ticket->news_.prompt.push_back(token);
  };
  incoming.request.on_end = [this, ticket](TextEnd why, const std::string& failure) {
    bool finished = false;
    {
      const std::lock_guard lock(ticket->mutex_);
      finished = why != TextEnd::unwanted || !failure.empty() || ticket->finished_;
      ticket->news_.ended = why;
      ticket->news_.failure = failure;
      ticket->changed_.notify_one();
    }
    const std::lock_guard lock(mutex_);
    --known_;
    ++(finished ? counts_.ended : counts_.abandoned);
  };
  {
    const std::lock_guard lock(mutex_);
    counts_.prompt_tokens += prompt_tokens;
  }
  const auto on_end = incoming.request.on_end;
  try {
    open_.emplace(batch.add(std::move(incoming.request)), ticket);
  } catch (const Error& error) {
    on_end(TextEnd::unwanted, error.what());
  }
}

void TextQueue::drop_abandoned(BatchGenerator& batch) {
  std::erase_if(open_, [&](const auto& one) {
    const auto& [name, ticket] = one;
    if (!batch.knows(name)) return true;
    bool finished = false;
    {
      const std::lock_guard lock(ticket->mutex_);
      if (!ticket->abandoned_) return false;
      finished = ticket->finished_;
    }
    batch.drop(name);
    const std::lock_guard lock(mutex_);
    --known_;
    ++(finished ? counts_.ended : counts_.abandoned);
    return true;
  });
}

void TextQueue::count_pass(const BatchGenerator& batch) {
  const std::lock_guard lock(mutex_);
  const PassReport& pass = batch.last_pass();
  ++counts_.passes;
  counts_.pass_seconds += pass.seconds;
  counts_.new_tokens += batch.last_new_tokens();
  counts_.drafted = batch.drafted();
  counts_.last_pass = pass;
  counts_.last_pass_tokens = batch.last_tokens();
  counts_.stalls.gather += pass.stalls.gather;
  counts_.stalls.host += pass.stalls.host;
  counts_.stalls.nvme += pass.stalls.nvme;
  counts_.moved = counts_.moved + pass.moved;
}

void TextQueue::serve(BatchGenerator& batch, const std::function<bool()>& stop, const std::function<void()>& idle) {
  for (;;) {
    if (stop()) drain();
    std::deque<Incoming> incoming;
    {
      const std::lock_guard lock(mutex_);
      incoming.swap(inbox_);
    }
    for (Incoming& one : incoming) begin(batch, std::move(one));
    drop_abandoned(batch);
    const bool ran = batch.step();
    if (ran) count_pass(batch);
    std::unique_lock lock(mutex_);
    const Scheduler& scheduler = batch.scheduler();
    counts_.running = scheduler.running();
    counts_.waiting = scheduler.waiting();
    counts_.kv_pages = scheduler.pool().pages();
    counts_.kv_free_pages = scheduler.pool().free_pages();
    if (ran) continue;
    if (draining_ && inbox_.empty()) return;
    changed_.wait_for(lock, kIdle, [this] { return draining_ || !inbox_.empty(); });
    if (!inbox_.empty() || draining_) continue;
    lock.unlock();
    idle();
  }
}

void TextQueue::drain() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
  changed_.notify_one();
}

bool TextQueue::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

ServeCounts TextQueue::counts() const {
  const std::lock_guard lock(mutex_);
  ServeCounts counts = counts_;
  counts.waiting += static_cast<std::int64_t>(inbox_.size());
  return counts;
}

}  // namespace zeepo
