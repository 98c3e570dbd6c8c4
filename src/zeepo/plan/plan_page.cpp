#include "zeepo/plan/plan_page.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/metrics/html_page.h"
#include "zeepo/plan/plan_json.h"
#include "zeepo/plan/plan_text.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

// What every page has.
Json page_data(const std::string& about) {
  return {{"about", about},          {"state", {{"kind", "finished"}, {"text", "plan"}}},
          {"tiles", Json::array()},  {"rows", Json::array()},
          {"curves", Json::array()}, {"tables", Json::array()}};
}

std::string page_of(const Json& data) {
  return html_page("zeepo plan", {.name = "zeepoPlan", .data = page_json(data), .script = plan_script()});
}

struct BarRow {
  std::string group, name;
  const MemoryPlan& memory;
  const PlaceBytes &budgets, &missing;
  std::optional<double> rate;
  std::string bound;
  bool best;
};
Json to_json(const BarRow& row) {
  return {{"group", row.group},
          {"name", row.name},
          {"bytes", zeepo::to_json(row.memory)},
          {"at_once", zeepo::to_json(row.memory.bytes)},
          {"budget", zeepo::to_json(row.budgets)},
          {"fits", row.missing == PlaceBytes{}},
          {"missing", missing_text(row.missing)},
          {"rate", row.rate ? Json(*row.rate) : Json(nullptr)},
          {"bound", row.bound},
          {"best", row.best}};
}

Json lanes_json(const std::string& title, const std::string& about, const StepTimeline& timeline) {
  using Resource = SimulatedTime::Resource;
  const std::pair<Resource, const char*> lanes[] = {{Resource::compute, "compute"},
                                                    {Resource::to_device, "host to device"},
                                                    {Resource::to_host, "device to host"},
                                                    {Resource::host_step, "host steps"},
                                                    {Resource::files, "nvme"},
                                                    {Resource::ranks, "network"}};
  Json json{{"title", title}, {"about", about}, {"seconds", timeline.seconds}, {"lanes", Json::array()}};
  std::size_t color = 0;
  for (const auto& [resource, name] : lanes) {
    Json busy = Json::array();
    for (const SimulatedRecord::Stretch& taken : timeline.busy[static_cast<std::size_t>(resource)])
      busy.push_back({taken.begin, taken.end});
    if (!busy.empty() || resource == Resource::compute)
      json["lanes"].push_back({{"name", name}, {"color", color}, {"busy", std::move(busy)}});
    ++color;
  }
  return json;
}

void add_tile(Json& data, const std::string& name, const std::string& value, const std::string& more = "") {
  data["tiles"].push_back({name, value, more});
}

void add_tier_tiles(Json& data, const PlaceBytes& bytes, const PlaceBytes& budgets) {
  for (const Place place : kPlaces)
    if (const auto i = static_cast<std::size_t>(place); bytes[i] > 0)
      add_tile(data, fmt::format("{} memory", name_of(place)), short_size(bytes[i]), "of " + short_size(budgets[i]));
}

}  // namespace

std::string training_page(const std::string& about, const Recommended& recommended, const std::vector<ExactPlan>& plans,
                          const PlanMachine& machine, const OptionTexts& given) {
  Json data = page_data(about);
  data["bars_title"] = "Bytes of rank 0 by stage and placement";
  data["rate_name"] = "tokens/s";
  if (!recommended.fits) data["state"] = {{"kind", "lost"}, {"text", "nothing fits"}};
  data["command_title"] = recommended.fits ? "Recommended" : "Nothing fits";
  data["command"] = recommended.fits ? folded(command_of(recommended, given)) : recommended.ways_out;
  if (const auto& time = recommended.time) {
    add_tile(data, "predicted", short_rate(time->tokens_per_second), "tokens/s");
    add_tile(data, "a step", short_seconds(time->seconds), fmt::format("bound by {}", name_of(time->bound())));
  }
  add_tier_tiles(data, recommended.memory.bytes, recommended.budgets);
  const TrainOptions& chosen = recommended.setup.options;
  for (const ExactPlan& plan : plans) {
    const bool best = recommended.fits && plan.stage == chosen.stage &&
                      flags_of(plan.arrangement) == flags_of(recommended.setup.arrangement());
    data["rows"].push_back(to_json({.group = fmt::format("stage {}", plan.stage),
                                    .name = plan.name,
                                    .memory = plan.memory,
                                    .budgets = plan.budgets,
                                    .missing = plan.missing,
                                    .rate = plan.time ? std::optional(plan.time->tokens_per_second) : std::nullopt,
                                    .bound = plan.time ? name_of(plan.time->bound()) : "",
                                    .best = best}));
  }
  if (recommended.fits) {
    const bool listed = std::ranges::any_of(data["rows"], [](const Json& row) { return row["best"].get<bool>(); });
    if (!listed)
      data["rows"].insert(
          data["rows"].begin(),
          to_json({.group = fmt::format("stage {}", chosen.stage),
                   .name = "recommended",
                   .memory = recommended.memory,
                   .budgets = recommended.budgets,
                   .missing = {},
                   .rate = recommended.time ? std::optional(recommended.time->tokens_per_second) : std::nullopt,
                   .bound = recommended.time ? name_of(recommended.time->bound()) : "",
                   .best = true}));
    if (recommended.time)
      data["timeline"] = lanes_json(
          "A step of the recommended settings, simulated",
          "When each resource works in a step like all but the first; the engine's own schedule, on clocks. " +
              std::string(chosen.grad_accum > 3 ? "Three of its micro-steps are shown. " : "") +
              "Speeds: " + machine.source + ".",
          predict_timeline(recommended.tuned, rates_of(recommended.tuned, machine)));
    for (const PlanCurve& curve : curves_by_batch(recommended, machine)) data["curves"].push_back(to_json(curve));
  }
  return page_of(data);
}

std::string inference_page(const std::string& about, const InferenceQuestion& question,
                           const std::vector<InferenceChoice>& choices) {
  Json data = page_data(about);
  data["bars_title"] = "Bytes of a rank by ranks, weights and where they live";
  data["rate_name"] = "tokens/s";
  const InferenceChoice* best = recommended(choices);
  data["command_title"] = best ? "Recommended" : "Nothing fits";
  data["command"] = best ? folded(command_of(*best, question)) : "raise --memory, or take more --ranks";
  if (best == nullptr) data["state"] = {{"kind", "lost"}, {"text", "nothing fits"}};
  if (best != nullptr && best->time) {
    add_tile(data, "predicted", short_rate(best->time->tokens_per_second), "tokens/s, all texts together");
    add_tile(data, "first token", short_seconds(best->time->first_token_seconds), "all prompts read");
    add_tile(data, "bound by", name_of(best->time->bound()));
  }
  if (best != nullptr) add_tier_tiles(data, best->plan.memory.bytes, best->plan.budgets);
  add_tile(data, "KV cache", short_size(kv_bytes(question)));
  for (const InferenceChoice& choice : choices)
    data["rows"].push_back(to_json({.group = choice.ranks == 1 ? "1 rank" : fmt::format("{} ranks", choice.ranks),
                                    .name = fmt::format("{} {}", weights_name(choice.plan.options), choice.name),
                                    .memory = choice.plan.memory,
                                    .budgets = choice.plan.budgets,
                                    .missing = choice.missing,
                                    .rate = choice.time ? std::optional(choice.time->tokens_per_second) : std::nullopt,
                                    .bound = choice.time ? name_of(choice.time->bound()) : "",
                                    .best = &choice == best}));
  if (best != nullptr && best->time) {
    const auto ranks = std::ranges::find(question.ranks, best->ranks, [](const auto& r) { return r.shape.ranks; });
    StepTimeline timeline;
    (void)predict_inference(best->plan.options, question.config, ranks->shape, question.texts, *ranks->machine.rates,
                            &timeline);
    data["timeline"] = lanes_json(
        "A pass of the recommended settings, simulated",
        "When each resource works while every text gets a token. Speeds: " + ranks->machine.source + ".", timeline);
  }
  return page_of(data);
}

std::string formula_page(const std::string& about, const Textbook& textbook, const std::vector<PlanCurve>& curves) {
  Json data = page_data(about);
  data["state"] = {{"kind", "finished"}, {"text", "by the papers' formulas"}};
  for (const PlanCurve& curve : curves) data["curves"].push_back(to_json(curve));
  Json stages = Json::array();
  for (const StageFigures& figures : textbook.stages)
    stages.push_back({fmt::format("stage {}", figures.stage), short_size(figures.bytes.params),
                      short_size(figures.bytes.grads), short_size(figures.bytes.optimizer),
                      short_size(figures.bytes.total), short_count(figures.comm_elements)});
  data["tables"].push_back({{"title", "States of a rank, elements sent a step"},
                            {"head", {"", "params", "grads", "optimizer", "all", "sent"}},
                            {"rows", std::move(stages)}});
  Json needs = Json::array();
  for (const BandwidthFigures& figures : textbook.bandwidth)
    needs.push_back({figures.what, fmt::format("{:.0f}", figures.intensity),
                     fmt::format("{:.4g}", figures.bytes_per_second_for_50 / 1e9),
                     fmt::format("{:.4g}", figures.bytes_per_second_for_90 / 1e9)});
  data["tables"].push_back({{"title", "Bandwidth without overlap"},
                            {"head", {"of", "FLOP/byte", "GB/s for 50%", "GB/s for 90%"}},
                            {"rows", std::move(needs)}});
  return page_of(data);
}

std::string sweep_page(const std::string& about, const std::vector<PlanCurve>& curves) {
  Json data = page_data(about);
  for (const PlanCurve& curve : curves) data["curves"].push_back(to_json(curve));
  return page_of(data);
}

}  // namespace zeepo
