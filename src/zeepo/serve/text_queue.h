// Requests from many threads to the one that has the model, and their tokens back.
//
// Any thread submits and waits on its Ticket; the model's thread calls serve(), which returns when the queue has been
// told to drain and everything that was accepted has ended. An abandoned Ticket frees its place before the next pass.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/infer/batch_generator.h"

namespace zeepo {

// What has come of a request so far.
class Ticket {
 public:
  struct News {
    std::vector<NewToken> prompt;  // its tokens that have been scored
    std::vector<NewToken> tokens;
    std::optional<TextEnd> ended;  // these tokens are the last
    std::string failure;
  };
  // What has come since the last call; waits for some, at most this long.
  News wait(std::chrono::milliseconds most);
  // Nothing more is wanted: nobody is there for it, or what there is ends it. Its place is free soon.
  void abandon();
  void finish();

 private:
  friend class TextQueue;
  std::mutex mutex_;
  std::condition_variable changed_;
  News news_;
  bool abandoned_ = false, finished_ = false;
};

// Numbers for /metrics and the page.
struct ServeCounts {
  std::int64_t running = 0, waiting = 0;  // requests
  std::int64_t kv_pages = 0, kv_free_pages = 0;
  std::int64_t ended = 0, refused = 0, abandoned = 0;  // requests, since the start
  std::int64_t prompt_tokens = 0, new_tokens = 0, passes = 0;
  BatchGenerator::Drafted drafted;
  double pass_seconds = 0, first_token_seconds = 0;  // sums
  std::int64_t first_tokens = 0;
  PassReport last_pass;
  std::int64_t last_pass_tokens = 0;
  Stalls stalls;     // sums
  MovedBytes moved;  // sums
};

class TextQueue {
 public:
  enum class Refusal { full, draining };

  // At most `places` requests are known at a time, running and waiting.
  explicit TextQueue(std::int64_t places) : places_(places) {}

  // As many tickets as requests, or none of them and why. Requests must be such that BatchGenerator::add takes them.
  struct Submitted {
    std::vector<std::shared_ptr<Ticket>> tickets;
    std::optional<Refusal> refusal;
  };
  Submitted submit(std::vector<TextRequest> requests);

  // On the model's thread. `stop` is asked often: true begins to drain. `idle` is called from time to time while there
  // is nothing to do.
  void serve(BatchGenerator& batch, const std::function<bool()>& stop, const std::function<void()>& idle);
  void drain();
  bool draining() const;
  ServeCounts counts() const;

 private:
  struct Incoming {
    TextRequest request;
    std::shared_ptr<Ticket> ticket;
    std::chrono::steady_clock::time_point came;
  };
  void begin(BatchGenerator& batch, Incoming incoming);
  void drop_abandoned(BatchGenerator& batch);
  void count_pass(const BatchGenerator& batch);

  const std::int64_t places_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Incoming> inbox_;
  std::int64_t known_ = 0;  // accepted and not ended
  bool draining_ = false;
  ServeCounts counts_;
  std::map<std::uint64_t, std::shared_ptr<Ticket>> open_;  // by the generator's name; the model's thread alone
};

}  // namespace zeepo
