// How a model can be asked on a machine: resident, streamed, quantised or sharded; what each way takes and how fast it
// is.
//
// Bytes are those that `zeepo generate` plans for the same texts, by the same dry pass (infer/inference.h). config.json
// is all that is read.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "zeepo/plan/inference_time.h"
#include "zeepo/plan/plan_machine.h"
#include "zeepo/train/option_table.h"

namespace zeepo {

// Ranks that a way runs on: one alone, or all of them with the weights shared out.
struct InferenceRanks {
  RankShape shape;
  RankRoom room;  // of each rank
  PlanMachine machine;
};

struct InferenceQuestion {
  InferenceOptions options;  // where weights live and how they are stored is left to the plan
  ModelConfig config;
  TextsAsked texts;
  std::vector<InferenceRanks> ranks;  // the fewest first
  std::vector<CodedType> weights;     // how they may be stored, the most exact first
  bool choose_prefetch = true;        // where units are larger than the default takes
  OptionTexts given = {};             // that the command repeats: --device, --memory, --simulate-link
};

// Throws UsageError for texts that are out of range, and for those longer than the model's positions.
void check(const TextsAsked& texts);
void check(const TextsAsked& texts, const ModelConfig& config);

struct InferenceChoice {
  int ranks = 1;
  std::string name;  // where the weights live: "resident", "part host", "part nvme", "host", "nvme"
  InferencePlan plan;
  PlaceBytes missing{};  // 0 where there is room
  std::optional<InferenceTime> time = {};

  bool fits() const { return missing == PlaceBytes{}; }
};

// All ways, by ranks and then by how weights are stored. Where "resident" does not fit, there is a way with as much on
// the device as does.
std::vector<InferenceChoice> inference_choices(const InferenceQuestion& question);

// "bf16", "int8".
std::string_view weights_name(const InferenceOptions& options);
// Elements of all parameters; bytes of the KV cache for all texts.
std::int64_t parameter_count(const ModelConfig& config);
std::int64_t kv_bytes(const InferenceQuestion& question);

// Of the most exact weights that fit, the fastest; more ranks or a tier below must gain 5%. Null: nothing fits.
const InferenceChoice* recommended(const std::vector<InferenceChoice>& choices);
// The fastest of narrower weights, where it gains 5% over the recommended one. Null: none does.
const InferenceChoice* faster_by_codes(const std::vector<InferenceChoice>& choices, const InferenceChoice& than);

// "mpirun -n 8 zeepo generate --model DIR ...".
std::string command_of(const InferenceChoice& choice, const InferenceQuestion& question);

}  // namespace zeepo
