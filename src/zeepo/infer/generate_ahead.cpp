#include "zeepo/infer/generate_ahead.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/timeline.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/copy_lane.h"
#include "zeepo/device/memory.h"
#include "zeepo/kernels/most_likely.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

using Clock = std::chrono::steady_clock;

// Tokens on their way to the host, read in the order in which they were sent.
class LateTokens {
 public:
  LateTokens() {
    compute_on(Device::current().compute,
               [&](auto& s) { memory_ = transfer_memory(s, "host", kSlots * sizeof(std::int32_t)); });
  }
  ~LateTokens() {
    for (const Point& point : sent_) dispatch(Device::current().compute, [&](auto& s) { wait_for(s, point); });
  }
  LateTokens(const LateTokens&) = delete;
  LateTokens& operator=(const LateTokens&) = delete;

  std::size_t waiting() const { return sent_.size(); }
  void send(const Tensor& token) {
    if (waiting() == kSlots) throw Error("generate: {} tokens are unread", kSlots);
    Point point;
    dispatch(Device::current().compute, [&](auto& s) {
      copy_to_host(s, token.view().data, slot(first_ + waiting()), sizeof(std::int32_t));
      point = point_of(s);
    });
    sent_.push_back(std::move(point));
  }
  std::int32_t read() {
    std::int32_t token = 0;
    dispatch(Device::current().compute, [&](auto& s) {
      wait_for(s, sent_.front());
      token = *slot(first_);
    });
    sent_.pop_front();
    ++first_;
    return token;
  }

 private:
  static constexpr std::size_t kSlots = 4;
  std::int32_t* slot(std::size_t i) const { return reinterpret_cast<std::int32_t*>(memory_.data()) + i % kSlots; }

  MemoryRange memory_;
  std::deque<Point> sent_;
  std::size_t first_ = 0;
};

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

class TextAhead {
 public:
  TextAhead(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
            const GenerateOptions& options)
      : engine_(engine),
        model_(model),
        options_(options),
        cache_(model.config(), 1, static_cast<std::int64_t>(prompt.size()) + options.max_new_tokens, dtype),
        prompt_(prompt),
        timeline_(Device::current().timeline) {}

  // Gives the GPU the pass of the next token, after those of a long prompt.
  void start() {
    if (started_ == 0) {
      const auto last = read_all_but_last(engine_, model_, cache_, prompt_, options_.prefill_tokens);
      ids_ = Tensor::from<std::int32_t>(last, {1, static_cast<std::int64_t>(last.size())});
    }
    ++started_;
    if (timeline_) timeline_->begin_step(started_);
    const std::string number = std::to_string(started_);
    const Span span(timeline_, TimelineRow::steps, "pass", {number});
    const Stalls stalled = engine_.stalls();
    const MovedBytes before = engine_.moved().in_time;
    engine_.infer(
        [&] {
          const Tensor logits = model_.logits(ids_, &cache_, LanguageModel::Positions::last);
          ids_ = Tensor({1, 1}, DType::i32);
          launch([&](auto& s) { most_likely(s, logits.view(), ids_.view()); });
        },
        started_ < options_.max_new_tokens ? Engine::Then::another : Engine::Then::nothing);
    tokens_.send(ids_);
    reports_.push_back({0, engine_.stalls() - stalled, engine_.moved().in_time - before});
  }

  // The next token, when the GPU has come to it.
  std::int32_t finish(Clock::time_point& began) {
    const std::int32_t token = tokens_.read();
    if (token < 0) throw Error("generate: the logits are not finite; are the weights sound?");
    const auto now = Clock::now();
    reports_.front().seconds = seconds_between(began, now);
    began = now;
    if (result_.ids.empty())
      result_.prefill = reports_.front();
    else
      result_.decode.push_back(reports_.front());
    reports_.pop_front();
    result_.ids.push_back(token);
    return token;
  }

  std::int64_t started() const { return started_; }
  std::int64_t finished() const { return static_cast<std::int64_t>(result_.ids.size()); }
  Generation& result() { return result_; }

 private:
  ModelEngine& engine_;
  LanguageModel& model_;
  const GenerateOptions& options_;
  KvCache cache_;
  std::span<const std::int32_t> prompt_;
  Tensor ids_;  // of the next pass
  Timeline* timeline_;
  std::int64_t started_ = 0;
  std::deque<PassReport> reports_;  // of passes whose token has not been read
  Generation result_;
  LateTokens tokens_;
};

}  // namespace

bool runs_ahead(const ModelEngine& engine, const GenerateOptions& options) {
  return Device::current().compute.plays() == Backend::cuda && options.sampling.temperature == 0 && !engine.drafts() &&
         engine.plan().fetches_nothing();
}

Generation generate_ahead(ModelEngine& engine, LanguageModel& model, DType dtype, std::span<const std::int32_t> prompt,
                          const GenerateOptions& options, const std::function<void(std::int32_t)>& on_token) {
  if (options.max_new_tokens == 0) return {};
  // Of a dry run the passes after the second are alike.
  constexpr std::int64_t kDryTokens = 3;
  const bool dry = Device::current().compute.dry();
  const std::int64_t wanted = dry ? std::min(options.max_new_tokens, kDryTokens) : options.max_new_tokens;
  TextAhead text(engine, model, dtype, prompt, options);
  auto began = Clock::now();
  auto first = began;
  bool stopped = false;
  text.start();
  while (text.finished() < wanted && !stopped) {
    // The first token alone: how long it takes is what people wait for. Later ones with the next on its way.
    while (text.finished() > 0 && text.started() < std::min(wanted, text.finished() + 2)) text.start();
    const std::int32_t token = text.finish(began);
    if (text.finished() == 1) first = began;
    on_token(token);
    stopped = !dry && std::ranges::find(options.stop, token) != options.stop.end();
  }
  text.result().seconds_decode = seconds_between(first, began);
  return text.result();
}

}  // namespace zeepo
