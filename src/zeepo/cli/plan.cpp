// zeepo plan: what a training run needs of each tier, before anything runs.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/base/thread_pool.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/plan_options.h"
#include "zeepo/cli/table_options.h"
#include "zeepo/comm/launch.h"
#include "zeepo/metrics/event_sink.h"
#include "zeepo/metrics/explained_run.h"
#include "zeepo/metrics/run_log.h"
#include "zeepo/plan/count.h"
#include "zeepo/plan/hardware.h"
#include "zeepo/plan/plan_json.h"
#include "zeepo/plan/plan_page.h"
#include "zeepo/plan/plan_text.h"
#include "zeepo/plan/recommended.h"
#include "zeepo/plan/replanned_run.h"
#include "zeepo/plan/run_sweep.h"
#include "zeepo/plan/sweep.h"
#include "zeepo/plan/textbook_choice.h"
#include "zeepo/train/option_values.h"

namespace zeepo::cli {
namespace {

using Json = nlohmann::ordered_json;

Textbook textbook_by(TextbookQuestion question, const TrainOptions& given) {
  question.batch.samples = given.micro_batch;
  if (given.seq_len > 0) question.batch.seq_len = given.seq_len;
  return textbook_of(question);
}

// The options as one point of a sweep has them.
PlanOptions at_point(PlanOptions options, const SweepPoint& point) {
  for (const auto& [name, value] : point) {
    if (name == "params") options.params = value;
    if (name == "layers") options.layers = value;
    if (name == "hidden") options.hidden = value;
    if (name == "ranks") options.ranks = value;
    if (name == "bandwidth") options.bandwidth_gbps = value;
    if (name == "micro-batch" || name == "seq-len") options.run["--" + name] = value;
  }
  return options;
}

std::string sweep_title(const PlanOptions& options, std::size_t points) {
  return fmt::format("{} points of {}", points, fmt::join(options.sweeps, ", "));
}

// By the papers' formulas.
std::string sweep_of_formulas(const PlanOptions& options) {
  std::vector<Sweep> sweeps;
  for (const std::string& text : options.sweeps)
    sweeps.push_back(parse_sweep(text, {"params", "layers", "hidden", "micro-batch", "seq-len", "ranks", "bandwidth"}));
  std::string lines = options.json ? "" : csv_header(sweeps) + "\n";
  std::vector<Textbook> textbooks;
  for (const SweepPoint& point : points_of(sweeps)) {
    const PlanOptions here = at_point(options, point);
    textbooks.push_back(textbook_by(question_of(here, source_of(here)), train_options(here)));
    lines += options.json ? line_of(to_json(textbooks.back())) : csv_row(point, textbooks.back()) + "\n";
  }
  write_page(options, [&] {
    return formula_page(sweep_title(options, textbooks.size()), textbooks.back(), curves_of(sweeps, textbooks));
  });
  return lines;
}

// What a page shows of the formulas where no sweep is given: shares over ranks.
std::vector<PlanCurve> usual_curves(const TextbookQuestion& asked) {
  constexpr std::int64_t kMost = 1024;
  Sweep ranks{"ranks", {}};
  std::vector<Textbook> textbooks;
  for (std::int64_t n = 1; n <= std::min(kMost, asked.params); n *= 2) {
    TextbookQuestion question = asked;
    question.ranks = n;
    question.gpus_per_node = std::min(asked.gpus_per_node, n);
    ranks.values.push_back(fmt::format("{}", n));
    textbooks.push_back(textbook_of(question));
  }
  return curves_of({ranks}, textbooks);
}

std::string plan_by_formulas(const PlanOptions& options, const TextbookQuestion& question) {
  const TrainOptions given = train_options(options);
  const Textbook textbook = textbook_by(question, given);
  const auto choice = choose_by_textbook(textbook, {given.device_bytes, given.host_bytes, given.nvme_bytes});
  write_page(options, [&] {
    return formula_page(
        fmt::format("{} parameters on {} ranks", short_count(textbook.question.params), textbook.question.ranks),
        textbook, usual_curves(textbook.question));
  });
  if (options.json) {
    Json json = to_json(textbook);
    json["recommended"] =
        choice ? to_json(*choice, textbook) : Json{{"by", "nothing"}, {"why", "--memory device=SIZE says what fits"}};
    return line_of(json);
  }
  if (choice) return text_of(*choice, textbook) + "\n" + text_of(textbook);
  return text_of(textbook) + "\n--memory device=80GB,host=200GB tells what fits; --model DIR plans to the byte.\n";
}

std::string about_text(const RunSetup& setup, std::int64_t params) {
  return fmt::format("{} with {} parameters in {} on {}; {} rank{}, {} on a node; {} x {} tokens a rank and micro-step",
                     name_of(setup.config.architecture), short_count(params), name_of(setup.options.dtype),
                     setup.options.backend == Backend::cuda ? "GPUs" : "the CPU", setup.ranks.ranks,
                     setup.ranks.ranks == 1 ? "" : "s", setup.ranks.ranks_on_node, setup.options.micro_batch,
                     setup.options.seq_len);
}

// Of a rank alone all stages are the same.
std::vector<ExactPlan> shown(const RunSetup& setup, std::vector<ExactPlan> plans) {
  if (setup.ranks.ranks == 1) std::erase_if(plans, [](const ExactPlan& plan) { return plan.stage > 0; });
  return plans;
}

struct ExactAnswer {
  RunSetup setup;
  Textbook textbook;
  PlanMachine machine;
  std::vector<ExactPlan> plans;
  Recommended recommended;
};

ExactAnswer answer_exactly(const PlanOptions& options, TextbookQuestion question) {
  if (question.ranks > std::numeric_limits<int>::max() || question.gpus_per_node > std::numeric_limits<int>::max())
    throw UsageError("plan: --ranks {} --gpus-per-node {}: too many for --model", question.ranks,
                     question.gpus_per_node);
  RunSetup setup = in_own_name([&] {
    ExactQuestion exact{.options = train_options(options),
                        .ranks = static_cast<int>(question.ranks),
                        .ranks_on_node = static_cast<int>(question.gpus_per_node)};
    if (options.model.empty()) exact.shape = config_of(*question.shape, question.vocab, exact.options.seq_len);
    return exact_setup(exact);
  });
  question.params = parameter_count(setup);
  const ModelConfig& config = setup.config;
  if (config.hidden % config.heads == 0) question.shape = {config.layers, config.hidden, config.heads};
  question.batch = {setup.options.micro_batch, setup.options.seq_len};
  Textbook textbook = textbook_of(question);
  const RankRoom room = exact_room(setup);
  PlanMachine machine = options.hardware ? described_machine(*options.hardware)
                                         : probed_machine(setup.options.backend, setup.ranks.ranks,
                                                          choose_threads(0, setup.ranks.ranks_on_node));
  std::vector<ExactPlan> plans = exact_plans(setup, room, machine);
  Recommended recommended = recommend(setup, room, machine, plans);
  return {std::move(setup), std::move(textbook), std::move(machine), std::move(plans), std::move(recommended)};
}

Json answer_json(const ExactAnswer& answer, const OptionTexts& given) {
  Json json = to_json(answer.textbook);
  json["recommended"] = recommended_json(answer.recommended, given);
  return json;
}

Json json_of(const PlanMachine& machine) { return machine.rates ? Json(machine.source) : Json(nullptr); }

std::string plan_exactly(const PlanOptions& options, const TextbookQuestion& question) {
  const ExactAnswer answer = answer_exactly(options, question);
  const auto& [setup, textbook, machine, plans, recommended] = answer;
  const std::string title = about_text(setup, textbook.question.params);
  write_page(options, [&] {
    return training_page(title, answer.recommended, shown(answer.setup, answer.plans), answer.machine, options.run);
  });
  if (options.json) {
    Json json = answer_json(answer, options.run);
    json["exact"] = exact_json(plans, setup, textbook);
    json["machine"] = json_of(machine);
    return line_of(json);
  }
  std::string text = wrapped(title, "  ") + "\n" + text_of(recommended, options.run) + "\n";
  const auto stage = static_cast<std::size_t>(recommended.setup.options.stage);
  const ExactPlan resident = plans.at(stage * usual_placements().size());
  text += text_of(shown(setup, plans));
  if (setup.ranks.ranks == 1) text += "  A rank alone shards nothing: stages 1 to 3 are the same.\n";
  const char* speeds = machine.rates ? "Speeds, each with what bounds it, are predicted for {}" : "No speeds: {}";
  text += "  " + wrapped(fmt::format(fmt::runtime(speeds), machine.source) + ".", "  ");
  return text + "\n" + difference_text(resident, setup, textbook) + "\n" + text_of(textbook);
}

// By exact plans, with the speeds of the machine.
std::string sweep_of_runs(const PlanOptions& options) {
  std::vector<Sweep> sweeps;
  for (const std::string& text : options.sweeps) sweeps.push_back(parse_sweep(text, run_sweep_names()));
  const std::vector<SweepPoint> points = points_of(sweeps);
  if (points.size() > kMostSweptRuns)
    throw UsageError("plan: --sweep: makes {} plans, and at most {} are made with --model or --hardware", points.size(),
                     kMostSweptRuns);
  std::string lines = options.json ? "" : run_csv_header(sweeps) + "\n";
  std::vector<SweptRun> runs;
  for (const SweepPoint& point : points) {
    const PlanOptions here = at_point(options, point);
    const ExactAnswer answer = answer_exactly(here, question_of(here, source_of(here)));
    runs.push_back(swept_run(answer.recommended, answer.textbook.question.params));
    if (options.json) {
      Json json = answer_json(answer, here.run);
      json["machine"] = json_of(answer.machine);
      lines += line_of(json);
    } else {
      lines += csv_row(point, runs.back()) + "\n";
    }
  }
  write_page(options, [&] { return sweep_page(sweep_title(options, runs.size()), curves_of(sweeps, runs)); });
  return lines;
}

std::string explanation(const PlanOptions& options) {
  const RunLog log = read_run_log(options.explain);
  try {
    const PredictedStep predicted = predict_again(log.digest.plan());
    return options.json ? line_of(explanation_json(log.digest, predicted)) : explanation_text(log.digest, predicted);
  } catch (const Error& error) {
    throw Error("plan: --explain {}: {}", options.explain.string(), error.what());
  }
}

std::string answer_to(const PlanOptions& options) {
  if (!options.explain.empty()) {
    if (!options.html.empty())
      throw UsageError("plan: --html: is of a plan, not of --explain; zeepo report RUN.jsonl --html FILE shows a run");
    return explanation(options);
  }
  if (!options.sweeps.empty()) {
    if (options.inference)
      throw UsageError("plan: --sweep: is of the formulas of training; leave it or --inference out");
    const bool exactly = !options.model.empty() || options.hardware;
    return exactly ? sweep_of_runs(options) : sweep_of_formulas(options);
  }
  const Source source = source_of(options);
  if (options.inference) return plan_of_inference(options);
  const TextbookQuestion question = question_of(options, source);
  const bool exactly = source == Source::model || options.hardware;
  return exactly ? plan_exactly(options, question) : plan_by_formulas(options, question);
}

// A plan needs no ranks. Under mpirun all make the same one, so that they fail alike, and one prints it.
void plan(const PlanOptions& options) {
  const std::string answer = answer_to(options);
  if (detect_launch().rank == 0) fmt::print("{}", answer);
}

}  // namespace

namespace {

void add_inference(CLI::App& command, PlanOptions& options) {
  constexpr const char* kGroup = "Of inference";
  CLI::Option* const flag =
      command.add_flag("--inference", options.inference,
                       "Plan zeepo generate instead: whether resident, streamed, quantised or sharded pays");
  flag->group(kGroup);
  const auto add = [&](const char* name, std::string& text, const char* type, const std::string& help) {
    CLI::Option* const option = command.add_option(name, text, help)->type_name(type)->group(kGroup)->needs(flag);
    if (!text.empty()) option->capture_default_str();
  };
  add("--batch", options.batch, "COUNT", "Texts at a time");
  add("--prompt-tokens", options.prompt_tokens, "COUNT", "Tokens of each prompt");
  add("--new-tokens", options.new_tokens, "COUNT", "New tokens of each text");
  add("--weights-dtype", options.weights, "TEXT",
      fmt::format("Plan this alone: {} [each of them]", names_of(choices_of(kWeightCodecs))));
  add("--offload-kv", options.kv, "TEXT", "Where the KV cache lives: none, on the device, or host");
  add("--kv-dtype", options.kv_dtype, "TEXT", "How it is stored: same as --dtype, or int8");
}

}  // namespace

void add_plan(CLI::App& program) {
  auto* command = program.add_subcommand(
      "plan", "Tell what a training run needs of device memory, host memory and files, and which settings fit");
  const auto options = std::make_shared<PlanOptions>();
  constexpr const char* kWhat = "What is planned, one of";
  command->add_option("--model", options->model, "A Hugging Face directory: config.json is enough. Plans to the byte")
      ->type_name("DIR")
      ->group(kWhat);
  command->add_option("--params", options->params, "Parameters, as 7.5e9 or 7.5B: by the papers' formulas")
      ->type_name("COUNT")
      ->group(kWhat);
  command->add_option("--layers", options->layers, "A shape, with --hidden and --heads: the same, and activations")
      ->type_name("COUNT")
      ->group(kWhat);
  command->add_option("--hidden", options->hidden, "Its width")->type_name("COUNT")->group(kWhat);
  command->add_option("--heads", options->heads, "Its attention heads")->type_name("COUNT")->group(kWhat);
  command->add_option("--vocab", options->vocab, "Its vocabulary, told beside: the formulas leave out the embedding")
      ->type_name("COUNT")
      ->group(kWhat);
  constexpr const char* kWhere = "Where it runs, how much at once";
  command->add_option("--ranks", options->ranks, "Ranks, one a GPU; none is started [1, or all of --hardware]")
      ->type_name("COUNT")
      ->group(kWhere);
  const auto hardware = std::make_shared<std::string>();
  command
      ->add_option("--hardware", *hardware,
                   fmt::format("A machine that need not be there, with its speeds: one of {}, or a JSON file",
                               fmt::join(hardware_names(), ", ")))
      ->type_name("NAME|FILE")
      ->group(kWhere);
  command->add_option("--gpus-per-node", options->gpus_per_node, "Ranks that share a machine [8, or --ranks]")
      ->type_name("COUNT")
      ->group(kWhere);
  for (const char* name : kPlanFormulaOptions) add_table_option(*command, *find_option(name), kWhere);
  for (const char* name : kPlanRunOptions)
    add_table_option(*command, *find_option(name), "Of the run, with --model (see zeepo train)");
  constexpr const char* kFormulas = "Of the formulas";
  command->add_option("--bytes-per-param", options->bytes_per_param, "16, as ZeRO counts, or 20, as ZeRO-Infinity does")
      ->type_name("16|20")
      ->capture_default_str()
      ->group(kFormulas);
  command->add_option("--checkpoint-interval", options->interval, "Blocks from one activation checkpoint to the next")
      ->type_name("COUNT")
      ->capture_default_str()
      ->group(kFormulas);
  command->add_option("--peak-tflops", options->peak_tflops, "Of a GPU, for the bandwidth that an efficiency needs")
      ->type_name("FLOAT")
      ->capture_default_str()
      ->group(kFormulas);
  command->add_option("--bandwidth", options->bandwidth_gbps, "Tell the efficiency at this many GB/s a GPU")
      ->type_name("FLOAT")
      ->group(kFormulas);
  command
      ->add_option(
          "--sweep", options->sweeps,
          "A line of figures for each value, as ranks=1,4,16 or hidden=1024..65536 (doubled); repeated, for each "
          "combination. Of params, layers, hidden, micro-batch, seq-len, ranks, bandwidth; with --model or --hardware, "
          "of exact plans, all but params and bandwidth. CSV, or JSON lines")
      ->type_name("NAME=VALUES")
      ->expected(1)
      ->take_all()
      ->group(kFormulas);
  add_inference(*command, *options);
  command
      ->add_option("--explain", options->explain, "Instead, put a run beside its plan: the file of zeepo train --log")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "One JSON object");
  command
      ->add_option("--html", options->html,
                   "Write a page with bars, curves and the simulated step: one file, which needs no network")
      ->type_name("FILE");
  command->footer(
      "Examples: zeepo plan --model llama --ranks 8 --device cuda --memory device=80GB,host=200GB\n"
      "          zeepo plan --params 7.5e9 --ranks 64\n"
      "          zeepo plan --layers 128 --hidden 25600 --heads 256 --ranks 512 --gpus-per-node 16 "
      "--bytes-per-param 20");
  command->callback([command, options, hardware] {
    if (!hardware->empty()) options->hardware = in_own_name([&] { return find_hardware(*hardware); });
    options->run = given_texts(*command);
    options->run.erase("--model");  // which is no option of a run here
    plan(*options);
  });
}

}  // namespace zeepo::cli
