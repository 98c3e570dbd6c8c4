// What a training run of a model directory really allocates, for every stage and the usual placements, of any number of
// ranks: by the dry pass of the code that runs (train/memory_plan.h).
//
// config.json is all that is read: no weights, no data, no other rank, no GPU. Plans are of rank 0, whose shares are
// the largest.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/plan/infinity_formulas.h"
#include "zeepo/plan/plan_machine.h"
#include "zeepo/plan/zero_formulas.h"
#include "zeepo/train/planning.h"

namespace zeepo {

struct ExactQuestion {
  TrainOptions options;  // stage, placement and what is tuned are left to the plan
  int ranks = 1, ranks_on_node = 1;
  std::optional<ModelConfig> shape = {};  // of a model without a directory
};

// GPT-2 of this shape, as the papers' formulas have it. Throws UsageError, naming the option, for what a config.json
// may not have either.
ModelConfig config_of(const TransformerShape& shape, std::int64_t vocab, std::int64_t seq_len);

// A setup of rank 0, with everything on the device at stage 0 and nothing tuned. Throws UsageError, naming the option.
RunSetup exact_setup(const ExactQuestion& question);

// What rank 0 may use: --memory, else this machine. Throws UsageError where neither says how much a GPU has.
RankRoom exact_room(const RunSetup& setup);
RankRoom exact_room(const TrainOptions& of_tiers, int ranks_on_node);

// What is tried at every stage.
struct UsualPlacement {
  const char* name;
  Placement placement;
  bool checkpointing;
};
const std::vector<UsualPlacement>& usual_placements();

// The setup with as much of it as is open to be chosen. Where its files have no --nvme-path, DIR stands for one.
RunSetup arranged(const RunSetup& setup, const UsualPlacement& usual);

struct ExactPlan {
  int stage = 0;
  std::string name;  // of the placement
  Arrangement arrangement;
  MemoryPlan memory;
  PlaceBytes budgets{}, missing{};    // missing: 0 where there is room
  std::optional<StepTime> time = {};  // where the machine is known

  bool fits() const { return missing == PlaceBytes{}; }
};

// The usual placements, at the setup's stage, in what the ranks of these rooms may use. One room stands for all ranks
// where they are alike. Tuning may take more of what is free, within the budgets.
std::vector<ExactPlan> usual_plans(const RunSetup& setup, const std::vector<RankRoom>& rooms,
                                   const PlanMachine& machine = {});
// The same at all stages, in order, whatever is open.
std::vector<ExactPlan> exact_plans(const RunSetup& setup, const RankRoom& room, const PlanMachine& machine = {});

// At this stage, with everything to be chosen.
RunSetup all_open(const RunSetup& setup, int stage);
// What it is the plan of. Where its files have no --nvme-path, DIR stands for one.
RunSetup setup_of(const ExactPlan& plan, const RunSetup& setup);

// Elements of all parameters, shared ones once.
std::int64_t parameter_count(const RunSetup& setup);

// Bytes that a run with these options keeps of one parameter, all ranks together. A bf16 weight and 16 bits beside it
// are the fp32 weight; sums of gradients over several micro-batches are fp32.
struct KeptBytes {
  double params = 0, grads = 0, optimizer = 0;
};
KeptBytes kept_bytes(const TrainOptions& options);

// Why a rank keeps other bytes than the textbook says. The parts add up to exact - textbook.
struct TextbookDifference {
  std::int64_t textbook = 0, exact = 0;
  std::int64_t kept = 0;     // other bytes of each parameter: no master copy beside bf16, fp32 sums of gradients
  std::int64_t padding = 0;  // of parameters to 128 elements, of shares to equal parts; small units kept whole
  std::int64_t activations = 0, working = 0;
  std::int64_t not_at_once = 0;  // below 0: kinds that peak at different times; above: gaps of the allocator
};
// Of a plan with everything on the device.
TextbookDifference difference_of(const ExactPlan& plan, const RunSetup& setup, const StateBytes& textbook);

}  // namespace zeepo
