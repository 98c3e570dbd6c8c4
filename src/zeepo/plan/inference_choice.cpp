#include "zeepo/plan/inference_choice.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/nn/module.h"
#include "zeepo/ops/attention.h"
#include "zeepo/plan/count.h"
#include "zeepo/plan/plan_text.h"
#include "zeepo/train/option_values.h"

namespace zeepo {
namespace {

constexpr double kFasterBy = 1.05;  // or else the way that takes less

struct NamedShares {
  const char* name;
  Shares shares;
};
const std::vector<NamedShares>& usual_shares() {
  static const std::vector<NamedShares> all{{"resident", {}}, {"host", {.host = 1}}, {"nvme", {.nvme = 1}}};
  return all;
}

bool is_fetched(const InferenceOptions& options, const RankShape& ranks) {
  return !options.params.on_device() || ranks.ranks > 1;
}

std::int64_t largest_unit_bytes(const InferenceQuestion& question) {
  const auto model = make_model(question.config);
  std::int64_t largest = 0;
  for (const Unit& unit : plan_units(*model, question.options.blocks_per_unit).units)
    largest = std::max(largest, unit.elements);
  return largest * static_cast<std::int64_t>(size_of(question.options.dtype));
}

// Ways of one number of ranks and one form of weights.
class Ways {
 public:
  Ways(const InferenceQuestion& question, const InferenceRanks& ranks, CodedType weights, std::int64_t largest_unit)
      : question_(question),
        ranks_(ranks),
        rooms_(static_cast<std::size_t>(ranks.shape.ranks), ranks.room),
        largest_unit_(largest_unit),
        options_(question.options) {
    options_.weights = weights;
    options_.device_bytes = ranks.room.device_option;
    options_.host_bytes = ranks.room.host_option;
    options_.nvme_bytes = ranks.room.nvme_option;
  }

  void add_to(std::vector<InferenceChoice>& choices) const {
    for (const NamedShares& usual : usual_shares()) {
      InferenceOptions options = options_;
      options.params = usual.shares;
      if (options.params.in_files() && options.nvme_paths.empty()) options.nvme_paths = {"DIR"};
      choices.push_back(made(usual.name, options));
      if (usual.shares.on_device() && !choices.back().fits()) add_part(choices);
    }
  }

 private:
  InferenceChoice made(const std::string& name, const InferenceOptions& options) const {
    InferenceChoice best = timed(name, options);
    // A unit that is larger than --prefetch is fetched when it is needed: the link waits for the compute.
    const bool ahead = question_.choose_prefetch && is_fetched(options, ranks_.shape) &&
                       largest_unit_ > options.prefetch_bytes && best.fits() && best.time;
    if (!ahead) return best;
    InferenceOptions further = best.plan.options;
    further.choose = {};
    further.prefetch_bytes = largest_unit_;
    InferenceChoice tried = timed(name, further);
    return tried.fits() && tried.time->seconds < best.time->seconds / kFasterBy ? tried : best;
  }

  // As much on the device as fits.
  void add_part(std::vector<InferenceChoice>& choices) const {
    InferenceOptions options = options_;
    options.choose = {.params = true, .prefetch = false};
    InferenceChoice part = made("part host", options);
    const Shares& shares = part.plan.options.params;
    if (shares.nvme > 0) part.name = "part nvme";
    if (part.fits() && shares.host < 1 && shares.nvme < 1) choices.push_back(std::move(part));
  }

  InferenceChoice timed(const std::string& name, const InferenceOptions& options) const {
    InferenceChoice choice{
        ranks_.shape.ranks, name,
        try_inference(options, question_.config, ranks_.shape, rooms_, work_of(options, question_.texts))};
    choice.plan.options.choose = {};
    choice.plan.budgets = budgets_on(ranks_.machine, choice.plan.budgets);
    choice.missing = missing_of(choice.plan.memory.bytes, choice.plan.budgets);
    choice.time = time_of(choice.plan.options);
    return choice;
  }

  std::optional<InferenceTime> time_of(const InferenceOptions& options) const {
    if (!ranks_.machine.rates) return std::nullopt;
    const SimulatedRates& rates = *ranks_.machine.rates;
    if (options.params.in_files() && rates.read <= 0) return std::nullopt;
    if (ranks_.shape.ranks > 1 && rates.within_node <= 0) return std::nullopt;
    return predict_inference(options, question_.config, ranks_.shape, question_.texts, rates);
  }

  const InferenceQuestion& question_;
  const InferenceRanks& ranks_;
  const std::vector<RankRoom> rooms_;
  const std::int64_t largest_unit_;
  InferenceOptions options_;
};

}  // namespace

void check(const TextsAsked& texts) {
  constexpr std::int64_t kMostTexts = 4096, kMostTokens = std::int64_t{1} << 24, kMostPositions = std::int64_t{1} << 30;
  const auto within = [](const char* name, std::int64_t value, std::int64_t most) {
    if (value < 1 || value > most) throw UsageError("plan: {} {}: must be from 1 to {}", name, value, most);
  };
  within("--batch", texts.batch, kMostTexts);
  within("--prompt-tokens", texts.prompt_tokens, kMostTokens);
  within("--new-tokens", texts.new_tokens, kMostTokens);
  const std::int64_t positions = texts.prompt_tokens + texts.new_tokens;
  if (positions * texts.batch > kMostPositions)
    throw UsageError("plan: --batch {}: texts of {} tokens are {} positions, and at most {} are planned", texts.batch,
                     positions, positions * texts.batch, kMostPositions);
}

void check(const TextsAsked& texts, const ModelConfig& config) {
  check(texts);
  if (texts.prompt_tokens + texts.new_tokens > config.max_positions)
    throw UsageError("plan: --prompt-tokens {} --new-tokens {}: the model has {} positions", texts.prompt_tokens,
                     texts.new_tokens, config.max_positions);
}

std::vector<InferenceChoice> inference_choices(const InferenceQuestion& question) {
  const std::int64_t largest_unit = largest_unit_bytes(question);
  std::vector<InferenceChoice> choices;
  for (const InferenceRanks& ranks : question.ranks)
    for (const CodedType weights : question.weights) Ways(question, ranks, weights, largest_unit).add_to(choices);
  return choices;
}

std::string_view weights_name(const InferenceOptions& options) {
  return options.weights == CodedType::same ? name_of(options.dtype) : name_of(options.weights);
}

std::int64_t parameter_count(const ModelConfig& config) {
  const auto model = make_model(config);
  std::int64_t count = 0;
  for (const auto& named : named_parameters(*model)) count += named.parameter->elements();
  return count;
}

std::int64_t kv_bytes(const InferenceQuestion& question) {
  const ModelConfig& config = question.config;
  const TextsAsked& texts = question.texts;
  const DType dtype = kv_dtype(question.options);
  const BatchLimits limits = limits_of(texts, question.options.kv);
  const bool pages = texts.batch > 1 || question.options.kv != Place::device;
  const std::int64_t positions = pages ? limits.positions() : texts.prompt_tokens + texts.new_tokens;
  return checked_product("the KV cache",
                         {2, config.layers, positions, cached_width(config.kv_heads, config.head_dim, dtype),
                          static_cast<std::int64_t>(size_of(dtype))});
}

const InferenceChoice* recommended(const std::vector<InferenceChoice>& choices) {
  const InferenceChoice* best = nullptr;
  for (const InferenceChoice& choice : choices) {
    if (!choice.fits()) continue;
    const bool first = best == nullptr || choice.plan.options.weights < best->plan.options.weights;
    const bool same = best != nullptr && choice.plan.options.weights == best->plan.options.weights;
    const bool faster = same && choice.time && best->time && choice.time->seconds < best->time->seconds / kFasterBy;
    if (first || faster) best = &choice;
  }
  return best;
}

const InferenceChoice* faster_by_codes(const std::vector<InferenceChoice>& choices, const InferenceChoice& than) {
  const InferenceChoice* best = nullptr;
  for (const InferenceChoice& choice : choices) {
    if (!choice.fits() || !choice.time || !than.time || choice.plan.options.weights <= than.plan.options.weights)
      continue;
    const double limit = best ? best->time->seconds : than.time->seconds / kFasterBy;
    if (choice.time->seconds < limit) best = &choice;
  }
  return best;
}

std::string command_of(const InferenceChoice& choice, const InferenceQuestion& question) {
  const InferenceOptions& options = choice.plan.options;
  const TextsAsked& texts = question.texts;
  std::string command = choice.ranks > 1 ? fmt::format("mpirun -n {} ", choice.ranks) : "";
  command += fmt::format("zeepo generate --model {}", options.model.empty() ? "DIR" : quoted(options.model.string()));
  command += texts.batch > 1 ? fmt::format(" --batch-file FILE --max-batch {}", texts.batch) : " --prompt TEXT";
  command += fmt::format(" --max-new-tokens {} --dtype {} {}", texts.new_tokens, name_of(options.dtype),
                         placement_flags(options));
  if (options.params.in_files()) command += fmt::format(" --nvme-path {}", quoted(text_of(options.nvme_paths)));
  for (const auto& [name, text] : question.given) command += fmt::format(" {} {}", name, quoted(text));
  return command;
}

}  // namespace zeepo
