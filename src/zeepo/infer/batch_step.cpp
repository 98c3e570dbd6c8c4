#include "zeepo/infer/batch_step.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

enum Flags : std::int32_t { kAnother = 1, kOver = 2, kAsks = 4 };

// Takes numbers from the front.
class Reader {
 public:
  explicit Reader(std::span<const std::int32_t> numbers) : left_(numbers) {}
  std::int32_t one() { return some(1)[0]; }
  std::span<const std::int32_t> some(std::int32_t count) {
    const auto n = static_cast<std::size_t>(count);
    if (count < 0 || n > left_.size()) throw Error("batch: a step of {} numbers ends too early", left_.size());
    const auto taken = left_.first(n);
    left_ = left_.subspan(n);
    return taken;
  }

 private:
  std::span<const std::int32_t> left_;
};

}  // namespace

std::int64_t BatchStep::tokens() const {
  std::int64_t tokens = 0;
  for (const BatchPart& part : parts) tokens += static_cast<std::int64_t>(part.ids.size());
  return tokens;
}

std::vector<std::int32_t> numbers_of(const BatchStep& step) {
  std::vector<std::int32_t> numbers{(step.another ? kAnother : 0) | (step.over ? kOver : 0) | (step.asks ? kAsks : 0),
                                    static_cast<std::int32_t>(step.parts.size())};
  for (const BatchPart& part : step.parts) {
    numbers.push_back(static_cast<std::int32_t>(part.past));
    numbers.push_back(static_cast<std::int32_t>(part.logit_rows()));
    for (const auto* list : {&part.ids, &part.pages}) {
      numbers.push_back(static_cast<std::int32_t>(list->size()));
      numbers.insert(numbers.end(), list->begin(), list->end());
    }
  }
  return numbers;
}

BatchStep step_of(std::span<const std::int32_t> numbers) {
  Reader reader(numbers);
  BatchStep step;
  const std::int32_t flags = reader.one();
  step.another = (flags & kAnother) != 0;
  step.over = (flags & kOver) != 0;
  step.asks = (flags & kAsks) != 0;
  for (std::int32_t parts = reader.one(); parts > 0; --parts) {
    BatchPart& part = step.parts.emplace_back();
    part.past = reader.one();
    const std::int32_t logit_rows = reader.one();
    part.wants_logits = logit_rows != 0;
    part.drafted = std::max(0, logit_rows - 1);
    for (auto* list : {&part.ids, &part.pages}) {
      const auto items = reader.some(reader.one());
      list->assign(items.begin(), items.end());
    }
    if (part.logit_rows() > static_cast<std::int64_t>(part.ids.size()))
      throw Error("batch: {} rows of logits of {} tokens", part.logit_rows(), part.ids.size());
  }
  return step;
}

}  // namespace zeepo
