#include "zeepo/plan/plan_json.h"

#include <algorithm>

#include "zeepo/zero/rank_report.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const TextbookDifference& difference) {
  return {{"textbook_bytes", difference.textbook}, {"exact_bytes", difference.exact},
          {"kept_per_param", difference.kept},     {"padding", difference.padding},
          {"activations", difference.activations}, {"working", difference.working},
          {"not_at_once", difference.not_at_once}};
}

}  // namespace

Json busy_json(const BusySeconds& busy_seconds) {
  Json busy;
  for (std::size_t i = 0; i < busy_seconds.size(); ++i) {
    double seconds = busy_seconds[i];
    const char* name = name_of(static_cast<SimulatedTime::Resource>(i));
    if (busy.contains(name)) seconds = std::max(seconds, busy[name].get<double>());  // the busier way of a link
    busy[name] = seconds;
  }
  return busy;
}

Json to_json(const std::optional<StepTime>& time) {
  if (!time) return nullptr;
  return {{"step_seconds", time->seconds},
          {"tokens_per_second", time->tokens_per_second},
          {"bound", name_of(time->bound())},
          {"busy_seconds", busy_json(time->busy_seconds)}};
}

Json to_json(const MemoryPlan& memory) {
  Json json;
  for (const Place place : kPlaces)
    json[std::string(name_of(place))] = to_json(memory.peak[static_cast<std::size_t>(place)]);
  return json;
}

Json to_json(const PlaceBytes& bytes) {
  Json json;
  for (const Place place : kPlaces) json[std::string(name_of(place))] = bytes[static_cast<std::size_t>(place)];
  return json;
}

Json exact_json(const std::vector<ExactPlan>& plans, const RunSetup& setup, const Textbook& textbook) {
  const TrainOptions& options = setup.options;
  Json json{{"device", options.backend == Backend::cuda ? "cuda" : "cpu"},
            {"dtype", name_of(options.dtype)},
            {"seq_len", options.seq_len},
            {"micro_batch", options.micro_batch},
            {"grad_accum", options.grad_accum},
            {"ranks_on_node", setup.ranks.ranks_on_node},
            {"plans", Json::array()}};
  for (const ExactPlan& plan : plans) {
    Json entry{{"stage", plan.stage},
               {"name", plan.name},
               {"fits", plan.fits()},
               {"arena_bytes", to_json(plan.memory.bytes)},
               {"budget_bytes", to_json(plan.budgets)},
               {"missing_bytes", to_json(plan.missing)},
               {"bytes", to_json(plan.memory)},
               {"time", to_json(plan.time)},
               {"flags", fmt::format("--stage {} {}", plan.stage, flags_of(plan.arrangement))}};
    if (plan.arrangement.placement.on_device() && plan.name == usual_placements().front().name)
      entry["difference"] =
          json_of(difference_of(plan, setup, textbook.stages[static_cast<std::size_t>(plan.stage)].bytes));
    json["plans"].push_back(std::move(entry));
  }
  return json;
}

Json recommended_json(const Recommended& recommended, const OptionTexts& given) {
  const DeepSpeedSettings deepspeed = deepspeed_of(recommended.setup, given);
  Json json{{"by", "dry pass"},
            {"fits", recommended.fits},
            {"stage", recommended.setup.options.stage},
            {"placement", to_json(recommended.setup.arrangement())},
            {"bytes", to_json(recommended.memory)},
            {"arena_bytes", to_json(recommended.memory.bytes)},
            {"budget_bytes", to_json(recommended.budgets)},
            {"time", to_json(recommended.time)},
            {"command", command_of(recommended, given)},
            {"deepspeed", deepspeed.json},
            {"deepspeed_flags_beside", deepspeed.flags_beside}};
  if (!recommended.fits) json["ways_out"] = recommended.ways_out;
  return json;
}

}  // namespace zeepo
