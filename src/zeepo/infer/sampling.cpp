#include "zeepo/infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {

std::int32_t most_likely(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// NaN would make the order of the others meaningless.
bool choose_any(std::span<const float> logits) {
  return std::isfinite(logits[static_cast<std::size_t>(most_likely(logits))]) &&
         std::ranges::none_of(logits, [](float x) { return std::isnan(x); });
}

std::int32_t choose_token(std::span<const float> logits, const Sampling& sampling, std::uint64_t position) {
  const auto best = static_cast<std::size_t>(most_likely(logits));
  if (!choose_any(logits)) throw Error("generate: the logits are not finite; are the weights sound?");
  if (sampling.temperature == 0) return static_cast<std::int32_t>(best);

  std::vector<std::int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto more_likely = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x != y ? x > y : a < b;
  };
  if (sampling.top_k > 0 && sampling.top_k < static_cast<std::int64_t>(order.size())) {
    std::nth_element(order.begin(), order.begin() + sampling.top_k, order.end(), more_likely);
    order.resize(static_cast<std::size_t>(sampling.top_k));
  }
  std::sort(order.begin(), order.end(), more_likely);

  std::vector<double> weights(order.size());
  double total = 0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const double below_best = static_cast<double>(logits[static_cast<std::size_t>(order[i])]) - logits[best];
    total += weights[i] = std::exp(below_best / sampling.temperature);
  }
  double kept = 0;
  std::size_t count = 0;
  while (count < weights.size() && (count == 0 || kept < sampling.top_p * total)) kept += weights[count++];

  double left = uniform(mix(RngKey{sampling.seed}, "sampling"), position) * kept;
  for (std::size_t i = 0; i < count; ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order[count - 1];
}

}  // namespace zeepo
