#include "zeepo/train/options.h"

#include <cmath>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

void at_least(const char* option, std::int64_t value, std::int64_t least) {
  if (value < least) throw UsageError("train: {} {}: must be at least {}", option, value, least);
}

// Far beyond what makes sense, so that products of sizes stay within 64 bits.
void in_sizes(const char* option, std::int64_t value) {
  constexpr std::int64_t kMost = 1 << 20;
  at_least(option, value, 1);
  if (value > kMost) throw UsageError("train: {} {}: must be at most {}", option, value, kMost);
}

void in_range(const char* option, double value, double least, double below) {
  if (!(value >= least && value < below))
    throw UsageError("train: {} {}: must be at least {} and below {}", option, value, least, below);
}

void not_negative(const char* option, double value) {
  if (!(value >= 0) || std::isinf(value)) throw UsageError("train: {} {}: must be a number, 0 or more", option, value);
}

void are_shares(const char* option, const Shares& shares) {
  constexpr double kRounding = 1e-9;
  if (!(shares.host >= 0 && shares.nvme >= 0 && shares.host + shares.nvme <= 1 + kRounding))
    throw UsageError("train: {} host={},nvme={}: must be shares, 0 or more and together at most 1", option, shares.host,
                     shares.nvme);
}

}  // namespace

StepPhase step_phase(const TrainOptions& options) {
  return options.clip > 0 || options.dtype == DType::f16 ? StepPhase::after_backward : StepPhase::in_backward;
}

HostStepBar host_step_bar(const TrainOptions& options) {
  return host_step_bar(step_phase(options) == StepPhase::in_backward, options.placement.params,
                       options.placement.optimizer);
}

void check(const TrainOptions& options) {
  at_least("--seq-len", options.seq_len, 0);
  in_sizes("--micro-batch", options.micro_batch);
  in_sizes("--grad-accum", options.grad_accum);
  at_least("--steps", options.steps, 0);
  if (options.stage < 0 || options.stage > 3)
    throw UsageError("train: --stage {}: must be 0, 1, 2 or 3", options.stage);
  if (options.stage > 1 && options.reduce == Reduce::last)
    throw UsageError("train: --reduce last: works with --stage 0 and 1, not with {}", options.stage);
  at_least("--blocks-per-unit", options.blocks_per_unit, 1);
  in_sizes("--tile-linear", options.linear_tiles);
  if (options.products == Products::fp8) {
    if (options.backend != Backend::cuda)
      throw UsageError("train: --matmul-dtype fp8: needs a GPU; add --device cuda, or leave it out");
    if (options.dtype == DType::f32)
      throw UsageError("train: --matmul-dtype fp8: with --dtype bf16 or fp16, not {}", name_of(options.dtype));
    if (options.linear_tiles > 1)
      throw UsageError("train: --matmul-dtype fp8: with whole layers, not with --tile-linear {}", options.linear_tiles);
  }
  not_negative("--timeout", options.timeout_seconds);
  at_least("--warmup", options.schedule.warmup, 0);
  not_negative("--lr", options.schedule.lr);
  not_negative("--lr-end", options.schedule.lr_end);
  not_negative("--clip", options.clip);
  not_negative("--weight-decay", options.optimizer.weight_decay);
  not_negative("--eps", options.optimizer.eps);
  in_range("--betas", options.optimizer.beta1, 0, 1);
  in_range("--betas", options.optimizer.beta2, 0, 1);
  check(options.optimizer);
  in_range("--momentum", options.optimizer.momentum, 0, 1);
  if (options.dropout) in_range("--dropout", *options.dropout, 0, 1);
  are_shares("--offload-param", options.placement.params);
  are_shares("--offload-optimizer", options.placement.optimizer);
  if (!options.host_step_share) return;
  const double share = *options.host_step_share;
  if (!(share >= 0 && share <= 1)) throw UsageError("train: --step-below {}: must be a share from 0 to 1", share);
  if (share == 0 || (share == 1 && options.backend != Backend::cuda)) return;
  const std::string named = share == 1 ? "host" : fmt::format("{}", share);
  const HostStepBar bar = host_step_bar(options);
  if (bar == HostStepBar::backward_pass)
    throw UsageError(
        "train: --step-below {}: with --clip 0 the device steps inside the backward pass; leave it out, or use "
        "--step-below device",
        named);
  if (options.choose.any()) return;  // of where states live
  if (bar == HostStepBar::no_host_state)
    throw UsageError(
        "train: --step-below {}: the host steps what is in its memory, and no optimizer state is: use "
        "--offload-optimizer host, or leave it out",
        named);
  if (bar == HostStepBar::params_in_files)
    throw UsageError(
        "train: --step-below {}: parameters in files are stepped by the device: use --offload-param host or none, or "
        "leave it out",
        named);
}

}  // namespace zeepo
