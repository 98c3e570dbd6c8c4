#include "zeepo/train/options.h"

#include "zeepo/base/error.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/option_values.h"

namespace zeepo {
namespace {

// The tokens of a step must be countable in 64 bits on any number of ranks: a million of them have 2^20 times these.
// More positions than a model may have are refused by Trainer, which knows how many there are.
void check_tokens(const TrainOptions& options) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 43, kMostPositions = std::int64_t{1} << 30;
  if (options.seq_len > kMostPositions) return;
  const std::int64_t samples = options.micro_batch * options.grad_accum;
  if (options.seq_len > 0 && samples > kMostTokens / options.seq_len)
    throw UsageError(
        "train: --micro-batch {} --grad-accum {} --seq-len {}: must be at most {} tokens a step and rank; lower one of "
        "them",
        options.micro_batch, options.grad_accum, options.seq_len, kMostTokens);
}

void check_products(const TrainOptions& options) {
  if (options.products != Products::fp8) return;
  if (options.backend != Backend::cuda)
    throw UsageError("train: --matmul-dtype fp8: needs a GPU; add --device cuda, or leave it out");
  if (options.dtype == DType::f32)
    throw UsageError("train: --matmul-dtype fp8: with --dtype bf16 or fp16, not {}", name_of(options.dtype));
  if (options.linear_tiles > 1)
    throw UsageError("train: --matmul-dtype fp8: with whole layers, not with --tile-linear {}", options.linear_tiles);
}

void check_comm(const TrainOptions& options) {
  if (options.comm != Carrier::nccl) return;
  if (options.backend != Backend::cuda)
    throw UsageError("train: --comm nccl: carries GPU memory alone; use --device cuda");
  if (options.rank_bytes_per_second > 0)
    throw UsageError("train: --simulate-link ranks: slows what passes through host memory; use --comm mpi");
}

// The first of these options that is given, as it is written.
std::string first_wire_option(const WireOptions& wire) {
  if (wire.gather != WireType::same) return fmt::format("--gather-dtype {}", name_of(wire.gather));
  if (wire.reduce != WireType::same) return fmt::format("--reduce-dtype {}", name_of(wire.reduce));
  if (wire.gather_way == GatherWay::ring) return "--gather-route ring";
  return wire.node_copy ? "--node-copy" : "";
}

void check_wire(const TrainOptions& options) {
  const WireOptions& wire = options.wire;
  const std::string given = first_wire_option(wire);
  if (wire.gather_way == GatherWay::ring && options.backend == Backend::cuda)
    throw UsageError("train: --gather-route ring: for ranks on CPUs only; use --device cpu, or leave it out");
  if (wire.coded() && options.stage == 0)
    throw UsageError("train: {}: stage 0 keeps the exact weights and gradients of all ranks; use --stage 1, 2 or 3",
                     given);
  if (wire.node_copy && options.stage != 3)
    throw UsageError(
        "train: --node-copy: with --stage 3; at stage {} every rank keeps all weights, and the backward pass gathers "
        "none",
        options.stage);
  if (wire.feedback && wire.reduce == WireType::same)
    throw UsageError("train: --reduce-feedback: exact gradients lose nothing; give --reduce-dtype too");
  if (wire.feedback && options.dtype == DType::f16)
    throw UsageError(
        "train: --reduce-feedback: with --dtype fp32 or bf16; what is lost at one loss scale of fp16 is of no use at "
        "the next");
}

void check_silence(const TrainOptions& options) {
  if (!options.no_communication) return;
  if (options.backend == Backend::cuda)
    throw UsageError("train: --no-communication: for ranks on CPUs only, so far; use --device cpu, or leave it out");
  if (const std::string wire = first_wire_option(options.wire); !wire.empty() || options.wire.node_size > 0)
    throw UsageError("train: --no-communication: nothing is sent that {} could change; leave it out",
                     wire.empty() ? fmt::format("--node-size {}", options.wire.node_size) : wire);
  const char* what = !options.output.empty()           ? "--output"
                     : !options.checkpoint_dir.empty() ? "--checkpoint-dir"
                     : options.resume.wanted           ? "--resume"
                     : options.elastic.wanted          ? "--elastic"
                                                       : nullptr;
  if (what != nullptr)
    throw UsageError("train: --no-communication: the weights are worth nothing, as the ranks do not meet; leave out {}",
                     what);
}

void check_sums(const TrainOptions& options) {
  if (options.stage > 1 && options.reduce == Reduce::last)
    throw UsageError("train: --reduce last: works with --stage 0 and 1, not with {}", options.stage);
  if (options.sum_order != SumOrder::local) return;
  if (options.reduce == Reduce::last)
    throw UsageError("train: --sum-order local: works with --reduce each, not with last, which has sums of its own");
  if (step_side(options) == StepSide::device) return;
  constexpr const char* kWhy =
      "the products add to sums on the device, and the host steps with sums of its own; use --step-below device, or "
      "--sum-order global";
  if (options.choose.optimizer) throw UsageError("train: --sum-order local: with --placement auto: {}", kWhy);
  if (!options.placement.optimizer.on_device())
    throw UsageError("train: --sum-order local: with --offload-optimizer {}: {}", text_of(options.placement.optimizer),
                     kWhy);
}

void check_step_below(const TrainOptions& options) {
  if (!options.host_step_share) return;
  const double share = *options.host_step_share;
  if (share == 0 || (share == 1 && options.backend != Backend::cuda)) return;
  const std::string named = text_of_host_share(share);
  const HostStepObstacle bar = host_step_obstacle(options);
  if (bar == HostStepObstacle::backward_pass)
    throw UsageError(
        "train: --step-below {}: with --clip 0 the device steps inside the backward pass; leave it out, or use "
        "--step-below device",
        named);
  if (options.choose.any()) return;  // of where states live
  if (bar == HostStepObstacle::no_host_state)
    throw UsageError(
        "train: --step-below {}: the host steps what is in its memory, and no optimizer state is: use "
        "--offload-optimizer host, or leave it out",
        named);
  if (bar == HostStepObstacle::params_in_files)
    throw UsageError(
        "train: --step-below {}: parameters in files are stepped by the device: use --offload-param host or none, or "
        "leave it out",
        named);
}

void check_fallback(const TrainOptions& options) {
  if (options.output_fallback.empty()) return;
  const std::string given = options.output_fallback.string();
  if (options.output.empty()) throw UsageError("train: --output-fallback {}: is the second place of --output", given);
  if (options.output_fallback.lexically_normal() == options.output.lexically_normal())
    throw UsageError("train: --output-fallback {}: is --output; name another place, on another disk at best", given);
}

void check_evaluation(const TrainOptions& options) {
  if (!options.eval_data.empty()) return;
  if (options.eval_every > 0) throw UsageError("train: --eval-every {}: needs --eval-data", options.eval_every);
  if (options.eval_samples > 0) throw UsageError("train: --eval-samples {}: needs --eval-data", options.eval_samples);
}

void check_checkpoints(const TrainOptions& options) {
  if (options.checkpoint_every > 0 && options.checkpoint_dir.empty())
    throw UsageError("train: --checkpoint-every {}: needs --checkpoint-dir", options.checkpoint_every);
}

void check_elastic(const TrainOptions& options) {
  if (!options.elastic.wanted) {
    if (!options.elastic.hosts.empty())
      throw UsageError("train: --hosts {}: is for --elastic; without it mpirun's --hostfile names the hosts",
                       options.elastic.hosts);
    return;
  }
  if (options.checkpoint_dir.empty())
    throw UsageError("train: --elastic: goes on from checkpoints; give --checkpoint-dir");
  if (!options.resume.from.empty())
    throw UsageError("train: --resume {}: with --elastic the newest checkpoint is taken; give --resume without a value",
                     options.resume.from.string());
  if (options.reduce == Reduce::last)
    throw UsageError("train: --elastic: with --reduce each, whose sums are the same on any number of ranks");
  if (options.balance.wanted)
    throw UsageError("train: --elastic: not with --balance, whose sums differ with the shares; leave it out");
  if (options.wire.coded())
    throw UsageError("train: --elastic: not with {}, whose sums differ with the number of ranks; leave it out",
                     first_wire_option(options.wire));
  if (options.sum_order == SumOrder::local)
    throw UsageError("train: --elastic: with --sum-order global, whose sums are the same on any number of ranks");
}

}  // namespace

StepPhase step_phase(const TrainOptions& options) {
  const bool whole = options.clip > 0 || options.dtype == DType::f16 || options.on_nan == OnNan::skip;
  return whole ? StepPhase::after_backward : StepPhase::in_backward;
}

HostStepObstacle host_step_obstacle(const TrainOptions& options) {
  return host_step_obstacle(step_phase(options), options.placement.params, options.placement.optimizer);
}

StepSide step_side(const TrainOptions& options) {
  return options.backend != Backend::cuda && options.host_step_share.value_or(1) == 1 ? StepSide::host
                                                                                      : StepSide::device;
}

void check(const TrainOptions& options) {
  for (const TrainOption& option : option_table())
    if (option.check) option.check(options);
  check(options.optimizer);
  check_tokens(options);
  check_products(options);
  check_comm(options);
  check_wire(options);
  check_silence(options);
  check_sums(options);
  check_step_below(options);
  check_fallback(options);
  check_evaluation(options);
  check_checkpoints(options);
  check_elastic(options);
}

}  // namespace zeepo
