#include "zeepo/plan/inference_text.h"

#include "zeepo/base/error.h"
#include "zeepo/plan/plan_json.h"
#include "zeepo/plan/plan_text.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

std::string plural(std::int64_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string time_text(const InferenceTime& time) {
  return fmt::format("first token after {}, then {} tokens/s, bound by {}", short_seconds(time.first_token_seconds),
                     short_rate(time.tokens_per_second), name_of(time.bound()));
}

std::string row_of(const InferenceChoice& choice, bool new_ranks, bool new_weights) {
  const PlaceBytes& bytes = choice.plan.memory.bytes;
  std::string end = "fits";
  if (!choice.fits())
    end = missing_text(choice.missing);
  else if (choice.time)
    end = fmt::format("{:>8}{:>8}  {}", short_seconds(choice.time->first_token_seconds),
                      short_rate(choice.time->tokens_per_second), name_of(choice.time->bound()));
  return fmt::format("  {:<5}{:<6}{:<10}{:>9}{:>10}{:>10}  {}\n",
                     new_ranks ? fmt::format("{}", choice.ranks) : std::string(),
                     new_weights ? weights_name(choice.plan.options) : std::string_view(), choice.name,
                     size_or_dash(bytes[0]), size_or_dash(bytes[1]), size_or_dash(bytes[2]), end);
}

std::string table_of(const std::vector<InferenceChoice>& choices) {
  std::string text = "Each way, by a dry pass of generate: bytes of a rank, first token, tokens/s\n";
  text += fmt::format("  {:<5}{:<6}{:<10}{:>9}{:>10}{:>10}  {:>8}{:>8}\n", "ranks", "", "weights in", "device", "host",
                      "nvme", "first", "tok/s");
  const InferenceChoice* before = nullptr;
  for (const InferenceChoice& choice : choices) {
    const bool new_ranks = before == nullptr || before->ranks != choice.ranks;
    const bool new_weights = new_ranks || before->plan.options.weights != choice.plan.options.weights;
    text += row_of(choice, new_ranks, new_weights);
    before = &choice;
  }
  return text;
}

std::string recommended_text(const InferenceQuestion& question, const std::vector<InferenceChoice>& choices) {
  const InferenceChoice* best = recommended(choices);
  if (best == nullptr) return "Nothing fits: raise --memory, take more --ranks, or ask for fewer tokens at a time.\n";
  std::string text = "Recommended:\n" + folded(command_of(*best, question));
  text += fmt::format("  takes {} a rank\n", tiers_text(best->plan.memory.bytes, best->plan.budgets));
  if (best->time) text += "  " + time_text(*best->time) + "\n";
  if (const InferenceChoice* faster = faster_by_codes(choices, *best))
    text += "  " + wrapped(fmt::format("{} weights, {} on {}, would be {:.1f} times as fast: {}",
                                       weights_name(faster->plan.options), faster->name, plural(faster->ranks, "rank"),
                                       best->time->seconds / faster->time->seconds, time_text(*faster->time)),
                           "    ");
  return text;
}

Json to_json(const std::optional<InferenceTime>& time) {
  if (!time) return nullptr;
  return {{"first_token_seconds", time->first_token_seconds},
          {"pass_seconds", time->pass_seconds},
          {"tokens_per_second", time->tokens_per_second},
          {"seconds", time->seconds},
          {"bound", name_of(time->bound())},
          {"busy_seconds", busy_json(time->busy_seconds)}};
}

Json to_json(const InferenceChoice& choice, const InferenceQuestion& question) {
  return {{"ranks", choice.ranks},
          {"weights_dtype", name_of(choice.plan.options.weights)},
          {"weights_in", choice.name},
          {"fits", choice.fits()},
          {"arena_bytes", zeepo::to_json(choice.plan.memory.bytes)},
          {"budget_bytes", zeepo::to_json(choice.plan.budgets)},
          {"missing_bytes", zeepo::to_json(choice.missing)},
          {"bytes", zeepo::to_json(choice.plan.memory)},
          {"time", to_json(choice.time)},
          {"command", command_of(choice, question)}};
}

}  // namespace

std::string about_text(const InferenceQuestion& question) {
  const InferenceOptions& options = question.options;
  const TextsAsked& texts = question.texts;
  return fmt::format("{} with {} parameters in {} on {}; {} of {} + {} tokens, whose KV cache is {}{}",
                     name_of(question.config.architecture), short_count(parameter_count(question.config)),
                     name_of(options.dtype), options.backend == Backend::cuda ? "GPUs" : "the CPU",
                     plural(texts.batch, "text"), texts.prompt_tokens, texts.new_tokens, short_size(kv_bytes(question)),
                     options.kv == Place::host ? " in host memory" : "");
}

std::string inference_text(const InferenceQuestion& question, const std::vector<InferenceChoice>& choices) {
  std::string text =
      wrapped(about_text(question), "  ") + "\n" + recommended_text(question, choices) + "\n" + table_of(choices);
  if (question.ranks.back().shape.ranks > 1)
    text += "  Several ranks share out the weights and answer the same texts together.\n";
  const PlanMachine& machine = question.ranks.back().machine;
  const char* speeds = machine.rates ? "Speeds, without drafts, are predicted for {}" : "No speeds: {}";
  return text + "  " + wrapped(fmt::format(fmt::runtime(speeds), machine.source) + ".", "  ");
}

Json inference_json(const InferenceQuestion& question, const std::vector<InferenceChoice>& choices) {
  const InferenceOptions& options = question.options;
  const TextsAsked& texts = question.texts;
  const PlanMachine& machine = question.ranks.back().machine;
  Json json{{"params", parameter_count(question.config)},
            {"device", options.backend == Backend::cuda ? "cuda" : "cpu"},
            {"dtype", name_of(options.dtype)},
            {"batch", texts.batch},
            {"prompt_tokens", texts.prompt_tokens},
            {"new_tokens", texts.new_tokens},
            {"kv_bytes", kv_bytes(question)}};
  const InferenceChoice* best = recommended(choices);
  json["recommended"] = best ? to_json(*best, question) : Json(nullptr);
  json["choices"] = Json::array();
  for (const InferenceChoice& choice : choices) json["choices"].push_back(to_json(choice, question));
  json["machine"] = machine.rates ? Json(machine.source) : Json(nullptr);
  return json;
}

}  // namespace zeepo
