// zeepo plan --inference: what asking a model needs of each tier, and how fast it is.
#include <algorithm>

#include "zeepo/base/thread_pool.h"
#include "zeepo/cli/plan_options.h"
#include "zeepo/device/devices.h"
#include "zeepo/infer/model_files.h"
#include "zeepo/metrics/event_sink.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/plan/count.h"
#include "zeepo/plan/exact_plan.h"
#include "zeepo/plan/inference_text.h"
#include "zeepo/plan/plan_page.h"
#include "zeepo/train/option_values.h"

namespace zeepo::cli {
namespace {

// Options of training that mean nothing here.
constexpr std::array kTrainingOptions{"--seq-len",     "--micro-batch", "--grad-accum",  "--optimizer",
                                      "--moments",     "--clip",        "--tile-linear", "--activation-checkpointing",
                                      "--matmul-dtype"};
constexpr int kMostRanks = 1 << 20;

TextsAsked texts_of(const PlanOptions& given) {
  return {.batch = parse_count("plan: --batch", given.batch),
          .prompt_tokens = parse_count("plan: --prompt-tokens", given.prompt_tokens),
          .new_tokens = parse_count("plan: --new-tokens", given.new_tokens)};
}

std::vector<CodedType> weights_of(const PlanOptions& given) {
  const auto choices = choices_of(kWeightCodecs);
  if (!given.weights.empty()) return {parse_choice("plan: --weights-dtype", given.weights, choices)};
  std::vector<CodedType> all;
  for (const auto& [name, type] : choices) all.push_back(type);
  return all;
}

ModelConfig config_of(const PlanOptions& given, Source source, const TextsAsked& texts) {
  if (source == Source::params)
    throw UsageError("plan: --params {}: of inference a model's shape is planned: --model or --layers", given.params);
  if (source == Source::model) return load_config(given.model);
  const TextbookQuestion question = question_of(given, source);
  check(texts);
  return zeepo::config_of(*question.shape, question.vocab, texts.prompt_tokens + texts.new_tokens);
}

// So many ranks, each with its share of the machine.
InferenceRanks ranks_of(const PlanOptions& given, int ranks, int on_node) {
  PlanOptions asked = given;
  asked.ranks = fmt::format("{}", ranks);
  asked.gpus_per_node = fmt::format("{}", on_node);
  const TrainOptions options = train_options(asked);
  const bool on_device = options.backend == Backend::cuda && ranks > 1;
  InferenceRanks result;
  result.shape = {.ranks = ranks,
                  .ranks_on_node = on_node,
                  .meet = on_device ? RankShape::Meet::on_device : RankShape::Meet::in_host_memory};
  result.room = exact_room(options, on_node);
  result.machine = given.hardware ? described_machine(*given.hardware)
                                  : probed_machine(options.backend, ranks, choose_threads(0, on_node));
  if (result.machine.rates) result.machine.rates = throttled(*result.machine.rates, options);
  return result;
}

InferenceOptions options_of(const PlanOptions& given, const TrainOptions& options) {
  InferenceOptions result;
  result.command = "plan";
  result.model = given.model;
  result.backend = options.backend;
  result.dtype = options.dtype;
  result.kv = parse_choice<Place>("plan: --offload-kv", given.kv, {{"none", Place::device}, {"host", Place::host}});
  result.kv_int8 = parse_choice<bool>("plan: --kv-dtype", given.kv_dtype, {{"same", false}, {"int8", true}});
  if (given.run.contains("--prefetch")) result.prefetch_bytes = options.prefetch_bytes;
  result.nvme_paths = options.nvme_paths;
  return result;
}

}  // namespace

std::string plan_of_inference(const PlanOptions& given) {
  for (const char* name : kTrainingOptions)
    if (given.run.contains(name)) throw UsageError("plan: {}: is of training; leave it or --inference out", name);
  const Source source = source_of(given);
  InferenceQuestion question;
  question.weights = weights_of(given);
  question.texts = texts_of(given);
  question.config = config_of(given, source, question.texts);
  check(question.texts, question.config);
  question.options = options_of(given, train_options(given));
  // As generate does: weights of the run's dtype stay in the model's own files.
  if (source == Source::model && !question.options.nvme_paths.empty() && has_weights(given.model))
    question.options.in_files =
        weights_in_model_files(question.config, WeightFiles(given.model), question.options.dtype);
  question.choose_prefetch = !given.run.contains("--prefetch");
  for (const char* name : {"--device", "--memory", "--simulate-link"})
    if (const auto found = given.run.find(name); found != given.run.end()) question.given.insert(*found);

  const TextbookQuestion asked = question_of(given, source);
  if (asked.ranks > kMostRanks)
    throw UsageError("plan: --ranks {}: must be from 1 to {} with --inference", asked.ranks, kMostRanks);
  const int ranks = static_cast<int>(asked.ranks);
  const int on_node = static_cast<int>(std::min<std::int64_t>(asked.gpus_per_node, ranks));
  question.ranks.push_back(ranks_of(given, 1, 1));
  if (ranks > 1) question.ranks.push_back(ranks_of(given, ranks, on_node));

  const std::vector<InferenceChoice> choices = inference_choices(question);
  write_page(given, [&] { return inference_page(about_text(question), question, choices); });
  return given.json ? line_of(inference_json(question, choices)) : inference_text(question, choices);
}

}  // namespace zeepo::cli
