// What an engine is asked to do, and what it tells of a step.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/comm/wire_type.h"
#include "zeepo/kernels/coded_weights.h"
#include "zeepo/optim/optimizer.h"
#include "zeepo/zero/loss_scale.h"
#include "zeepo/zero/placement.h"
#include "zeepo/zero/step_side.h"

namespace zeepo {

struct WeightsInFiles;

enum class Decay { all, matrices };  // matrices: only parameters of two or more dimensions
enum class Use { train, infer };     // infer keeps the parameters alone

// When gradients of several micro-steps are reduced over the ranks: each micro-step into the shard, the same at every
// stage; or summed on each rank first, with less traffic, more memory and other rounding (stages 0 and 1).
enum class Reduce { each, last };

// What a step does whose loss or gradients are not finite: it throws NotFinite (engine.h); or it leaves weights and
// optimizer state as they were, all of them, and says so in its result.
enum class OnNan { stop, skip };

struct EngineOptions {
  // Pieces are whole pages of files in every dtype, and whole blocks of the gradient norm.
  static constexpr std::int64_t kPieceAlignment = 1 << 17;

  Use use = Use::train;
  DType dtype = DType::f32;  // of parameters, activations and gradients
  // How weights are stored in every tier, and sent between ranks, until a visit uses them. Use::infer only.
  CodedType stored_as = CodedType::same;
  // What is sharded over the ranks: 0 nothing, 1 the optimizer's state, 2 and the gradients, 3 and the parameters.
  int stage = 0;
  // Of gathered parameters ahead of their use; 0: nothing is prefetched, and no collective runs beside the compute.
  std::int64_t prefetch_bytes = std::int64_t{256} << 20;
  OptimizerOptions optimizer = {};
  Decay decay = Decay::all;
  std::int64_t accumulation = 1;  // micro-steps a step
  Reduce reduce = Reduce::each;
  // local: only where gradient sums stay on the device wherever the state lives, so that placements agree: with
  // `step_below_on` device, or all optimizer state on the device. Not with Reduce::last.
  SumOrder sum_order = SumOrder::global;
  std::int64_t blocks_per_unit = 1;  // of the model's repeated blocks
  Placement placement = {};          // of what is offloaded: in the tiers of the current Device
  // Where these hold all weights of a unit whose place is nvme, in `dtype`, the unit is read there. Use::infer only.
  std::shared_ptr<const WeightsInFiles> in_files = {};
  StepSide step_below_on = StepSide::host;
  // Where the device steps offloaded state: the part of the state in host memory that the host steps instead, beside
  // the device (HostStepper); and how many of these pieces have buffers. None: no part, at any time.
  double host_share = 0;
  int host_pieces_under_way = 0;
  // Elements of offloaded optimizer state that are moved and stepped together, a multiple of kPieceAlignment; and how
  // many such pieces have buffers: in host memory where the host steps state in files, in device memory where the
  // device steps.
  std::int64_t piece_elements = 1 << 22;
  int pieces_under_way = 4;
  float clip = 1.0f;  // 0 or less: no clipping
  StepPhase step_phase = StepPhase::after_backward;
  bool activation_checkpointing = false;  // offloaded activations are always checkpoints
  LossScale::Options loss_scale = {};     // fp16 only
  OnNan on_nan = OnNan::stop;             // skip: with StepPhase::after_backward
  WireOptions wire = {};                  // coded gradients and weights: stages 1 to 3, on the CPU
  std::int64_t snapshot_bytes = 0;        // of host memory that snapshots pass through; 0: none can be taken
};

// Throws Error for options that are out of range or contradict each other.
void check(const EngineOptions& options);

// By which a group of parameters is stepped. The type of the optimizer and what it keeps are those of the engine's
// options in every step; the rest may change from one to the next.
struct StepRule {
  double rate = 0;
  OptimizerOptions optimizer = {};
};

// Of one step: one learning rate, by the engine's options; or a rule for each group of parameters.
struct StepRules {
  StepRules(double lr) : rate(lr) {}  // NOLINT(google-explicit-constructor): most steps have no more than a rate
  explicit StepRules(std::vector<StepRule> of_groups) : groups(std::move(of_groups)) {}

  double rate = 0;
  std::vector<StepRule> groups = {};
  StepRule of(std::size_t group, const OptimizerOptions& options) const {
    return groups.empty() ? StepRule{rate, options} : groups[group];
  }
};

// How far transfers run ahead. It changes when memory is used, and no bit of what is computed.
struct Depths {
  std::int64_t prefetch_bytes;
  int pieces_under_way;
  double host_share = 0;
  friend bool operator==(const Depths&, const Depths&) = default;
};

// A micro-batch of a step: of this micro-step, from 0, on this rank.
struct MicroBatchPlace {
  std::int64_t micro_step = 0;
  int rank = 0;
  friend bool operator==(const MicroBatchPlace&, const MicroBatchPlace&) = default;
};

struct StepResult {
  float loss = 0;  // the mean over the step's micro-batches, before the update
  float grad_norm = 0;
  bool skipped = false;  // fp16 overflow, or not finite: nothing was changed
  float loss_scale = 1;  // that the step was computed with
  float note = 0;        // the largest of the notes that the ranks gave Engine::step()
  // The loss or a gradient is infinite or not a number, gradients that a loss scale has made so apart; and the
  // micro-batches whose loss it is, none where the gradients alone are.
  bool not_finite = false;
  std::vector<MicroBatchPlace> bad_losses = {};
};

// Seconds that the compute has waited: for collectives, for host memory and files, and for the host's steps.
struct Stalls {
  double gather = 0, host = 0, nvme = 0, step = 0;
  friend Stalls operator-(const Stalls& a, const Stalls& b) {
    return {a.gather - b.gather, a.host - b.host, a.nvme - b.nvme, a.step - b.step};
  }
};

// One micro-step of a step.
struct MicroStep {
  std::int64_t number = 0, count = 1;
  bool first() const { return number == 0; }
  bool last() const { return number + 1 == count; }
};

}  // namespace zeepo
