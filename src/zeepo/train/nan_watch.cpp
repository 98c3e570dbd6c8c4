#include "zeepo/train/nan_watch.h"

#include <algorithm>
#include <cmath>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::size_t kMostTold = 16;  // samples in a message; the log has all

}  // namespace

void NanWatch::after(std::int64_t step, const StepResult& result) {
  if (!result.not_finite) {
    in_a_row_ = 0;
    return;
  }
  tell(step, result, "the step is skipped");
  if (++in_a_row_ < kMostInARow || options_.on_nan != OnNan::skip) return;
  throw Error(
      "train: step {}: the loss or a gradient was not a number in {} steps in a row; lower --lr, or look for broken "
      "weights or data",
      step, in_a_row_);
}

void NanWatch::tell(std::int64_t step, const StepResult& result, const std::string& then) {
  const bool gradients_alone = std::isfinite(result.loss);
  nlohmann::ordered_json micro_batches = nlohmann::ordered_json::array();
  std::vector<std::int64_t> all;
  for (const MicroBatchPlace& place : result.bad_losses) {
    const auto samples = batches_.samples_of(step, place);
    micro_batches.push_back({{"micro_step", place.micro_step}, {"rank", place.rank}, {"samples", samples}});
    all.insert(all.end(), samples.begin(), samples.end());
  }
  std::string where = "of the global batch";
  if (!result.bad_losses.empty()) {
    const MicroBatchPlace& first = result.bad_losses.front();
    where = fmt::format("in micro-step {} of rank {}", first.micro_step, first.rank);
    if (result.bad_losses.size() > 1) where += fmt::format(" and {} others", result.bad_losses.size() - 1);
  } else {
    all = batches_.samples_of(step);
    micro_batches.push_back({{"samples", all}});
  }
  std::string samples = fmt::format(
      "{}", fmt::join(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(kMostTold, all.size())), ", "));
  if (all.size() > kMostTold) samples += fmt::format(" and {} more", all.size() - kMostTold);
  report_.not_finite(
      step, result, micro_batches,
      fmt::format("step {}: {} {}, {} (samples {}); {}", step, gradients_alone ? "the gradient norm is" : "the loss is",
                  unsigned_nan(gradients_alone ? result.grad_norm : result.loss), where, samples, then));
}

}  // namespace zeepo
