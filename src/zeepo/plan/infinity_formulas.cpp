#include "zeepo/plan/infinity_formulas.h"

#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/plan/count.h"

namespace zeepo {
namespace {

void check_least(const char* option, std::int64_t value) {
  if (value < 1) throw UsageError("plan: {} {}: must be at least 1", option, value);
}

void check(const TokenBatchShape& batch) {
  check_least("--micro-batch", batch.samples);
  check_least("--seq-len", batch.seq_len);
}

void check_interval(const TransformerShape& shape, std::int64_t interval) {
  check_least("--checkpoint-interval", interval);
  if (interval > shape.layers)
    throw UsageError("plan: --checkpoint-interval {}: must be at most the {} layers", interval, shape.layers);
}

void check_rate(const char* what, double value, bool may_be_zero) {
  if (std::isfinite(value) && (value > 0 || (may_be_zero && value == 0))) return;
  throw UsageError("plan: {} {}: must be a number above 0", what, value);
}

// Bytes that one block keeps of one token: 16 hd + 2 heads seq.
std::int64_t bytes_of_a_token(const TransformerShape& shape, const TokenBatchShape& batch) {
  constexpr const char* kWhat = "activation bytes of a token";
  return checked_sum(kWhat, checked_product(kWhat, {16, shape.hidden}),
                     checked_product(kWhat, {2, shape.heads, batch.seq_len}));
}

}  // namespace

void check(const TransformerShape& shape) {
  check_least("--layers", shape.layers);
  check_least("--hidden", shape.hidden);
  check_least("--heads", shape.heads);
  if (shape.hidden % shape.heads != 0)
    throw UsageError("plan: --heads {}: must divide --hidden {}", shape.heads, shape.hidden);
}

std::int64_t transformer_params(const TransformerShape& shape) {
  check(shape);
  return checked_product("parameters", {12, shape.layers, shape.hidden, shape.hidden});
}

std::int64_t model_state_bytes(const TransformerShape& shape) {
  return checked_product("bytes of the model states", {20, transformer_params(shape)});
}

std::int64_t activation_checkpoint_bytes(const TransformerShape& shape, const TokenBatchShape& batch,
                                         std::int64_t interval) {
  check(shape);
  check(batch);
  check_interval(shape, interval);
  return divide_up(
      checked_product("bytes of activation checkpoints", {2, batch.samples, batch.seq_len, shape.hidden, shape.layers}),
      interval);
}

std::int64_t activation_bytes(const TransformerShape& shape, const TokenBatchShape& batch) {
  return checked_product("bytes of all activations", {activation_working_bytes(shape, batch, 1), shape.layers});
}

std::int64_t model_state_working_bytes(std::int64_t hidden) {
  check_least("--hidden", hidden);
  return checked_product("working memory of the model states", {4, hidden, 4, hidden});
}

std::int64_t activation_working_bytes(const TransformerShape& shape, const TokenBatchShape& batch,
                                      std::int64_t interval) {
  check(shape);
  check(batch);
  check_interval(shape, interval);
  return checked_product("working memory of the activations",
                         {batch.samples, batch.seq_len, interval, bytes_of_a_token(shape, batch)});
}

double work_per_iteration(std::int64_t params, const TokenBatchShape& batch) {
  check_least("--params", params);
  check(batch);
  return 2.0 * 4.0 * static_cast<double>(batch.samples) * static_cast<double>(batch.seq_len) *
         static_cast<double>(params);
}

double intensity_of_params_and_grads(const TokenBatchShape& batch) {
  check(batch);
  return static_cast<double>(batch.seq_len) * static_cast<double>(batch.samples);
}

double intensity_of_optimizer_states(const TokenBatchShape& batch) { return intensity_of_params_and_grads(batch) / 4; }

double intensity_of_activation_checkpoints(std::int64_t hidden, std::int64_t interval) {
  check_least("--hidden", hidden);
  check_least("--checkpoint-interval", interval);
  return 24.0 * static_cast<double>(hidden) * static_cast<double>(interval);
}

double efficiency_at(double bytes_per_second, double intensity, double peak_flops) {
  check_rate("--bandwidth", bytes_per_second, true);
  check_rate("intensity", intensity, false);
  check_rate("--peak-tflops", peak_flops, false);
  // As 1 / (1 + x), so that no product grows past what a double holds.
  return bytes_per_second == 0 ? 0 : 1 / (1 + peak_flops / intensity / bytes_per_second);
}

double bandwidth_for(double efficiency, double intensity, double peak_flops) {
  if (!(efficiency >= 0 && efficiency < 1))
    throw UsageError("plan: efficiency {}: must be from 0 to below 1", efficiency);
  check_rate("intensity", intensity, false);
  check_rate("--peak-tflops", peak_flops, false);
  return efficiency / (1 - efficiency) * (peak_flops / intensity);
}

}  // namespace zeepo
