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
#include "zeepo/cli/commands.h"
#include "zeepo/cli/table_options.h"
#include "zeepo/comm/launch.h"
#include "zeepo/metrics/explained_run.h"
#include "zeepo/metrics/run_log.h"
#include "zeepo/plan/count.h"
#include "zeepo/plan/hardware.h"
#include "zeepo/plan/plan_json.h"
#include "zeepo/plan/plan_text.h"
#include "zeepo/plan/recommended.h"
#include "zeepo/plan/sweep.h"
#include "zeepo/plan/textbook_choice.h"
#include "zeepo/train/option_values.h"

namespace zeepo::cli {
namespace {

using Json = nlohmann::ordered_json;

// Options of a run that a plan depends on, as `zeepo train` describes them; with --params or --layers those alone that
// the formulas know.
constexpr std::array kFormulaOptions{"--seq-len", "--micro-batch", "--memory"};
constexpr std::array kRunOptions{"--grad-accum",  "--device",       "--dtype",
                                 "--optimizer",   "--moments",      "--clip",
                                 "--tile-linear", "--nvme-path",    "--activation-checkpointing",
                                 "--prefetch",    "--matmul-dtype", "--simulate-link"};
constexpr std::int64_t kUsualGpusPerNode = 8;

struct PlanOptions {
  std::string model, params, layers, hidden, heads, vocab;
  std::string ranks, gpus_per_node, bytes_per_param = "16", interval = "1";
  std::string peak_tflops = fmt::format("{:g}", TextbookQuestion{}.peak_flops / 1e12), bandwidth_gbps;
  bool json = false;
  std::filesystem::path explain;
  std::optional<Hardware> hardware;
  std::vector<std::string> sweeps;
  OptionTexts run;  // kFormulaOptions and kRunOptions as given
};

// What the options of a run have to say, in the name of this command.
template <class F>
auto in_own_name(const F& f) {
  try {
    return f();
  } catch (const UsageError& error) {
    const std::string text = error.what();
    constexpr std::string_view kTrain = "train: ";
    throw UsageError("{}", text.starts_with(kTrain) ? "plan: " + text.substr(kTrain.size()) : text);
  }
}

// What the description says of memory, where --memory does not.
void of_hardware(TrainOptions& options, const Hardware& hardware) {
  const auto fill = [](std::int64_t& bytes, std::int64_t of_gpu) {
    if (bytes == 0) bytes = of_gpu;
  };
  if (options.backend != Backend::cuda) throw UsageError("plan: --hardware describes GPUs: leave out --device cpu");
  fill(options.device_bytes, gpu_budget(static_cast<std::size_t>(hardware.device_bytes)));
  fill(options.host_bytes, hardware.host_bytes / hardware.gpus_per_node);
  fill(options.nvme_bytes, hardware.nvme_bytes / hardware.gpus_per_node);
}

// Device and dtype as train takes them, but for a GPU that need not be there.
TrainOptions train_options(const PlanOptions& given) {
  return in_own_name([&] {
    TrainOptions options;
    options.model = given.model;
    options.backend = given.hardware ? Backend::cuda : default_backend();
    for (const auto& [name, text] : given.run) assign(options, name, text);
    if (given.hardware) of_hardware(options, *given.hardware);
    if (!given.run.contains("--dtype")) options.dtype = default_dtype(options.backend);
    if (options.nvme_bytes > 0 && options.nvme_paths.empty()) options.nvme_paths = {"DIR"};
    return options;
  });
}

// Above 0, times `unit`.
double parse_rate(const std::string& option, const std::string& text, double unit) {
  const double value = parse_number(option, text) * unit;
  if (!(value > 0 && std::isfinite(value))) throw UsageError("{} {}: must be a number above 0", option, text);
  return value;
}

enum class Source { model, params, shape };

Source source_of(const PlanOptions& options) {
  const bool shape = !options.layers.empty() || !options.hidden.empty() || !options.heads.empty();
  const int sources = (options.model.empty() ? 0 : 1) + (options.params.empty() ? 0 : 1) + (shape ? 1 : 0);
  if (sources != 1)
    throw UsageError(
        "plan: say what to plan by one of --model DIR, --params 7.5e9, or --layers L --hidden H --heads A{}",
        sources > 1 ? ", not by several" : "");
  if (!options.vocab.empty() && !shape) throw UsageError("plan: --vocab {}: goes with --layers", options.vocab);
  if (!options.model.empty()) return Source::model;
  if (options.hardware && !shape)
    throw UsageError("plan: --params {}: of a machine a model's shape is planned: --model or --layers", options.params);
  for (const char* name : kRunOptions)
    if (options.run.contains(name) && !options.hardware)
      throw UsageError("plan: {}: goes with --model DIR or --hardware; the formulas do not depend on it", name);
  return shape ? Source::shape : Source::params;
}

TextbookQuestion question_of(const PlanOptions& options, Source source) {
  TextbookQuestion question;
  if (source == Source::params) question.params = parse_count("plan: --params", options.params);
  if (source == Source::shape) {
    for (const auto& [name, text] : {std::pair{"--layers", &options.layers}, std::pair{"--hidden", &options.hidden},
                                     std::pair{"--heads", &options.heads}})
      if (text->empty()) throw UsageError("plan: {} is missing: a shape is --layers L --hidden H --heads A", name);
    question = TextbookQuestion::of({.layers = parse_count("plan: --layers", options.layers),
                                     .hidden = parse_count("plan: --hidden", options.hidden),
                                     .heads = parse_count("plan: --heads", options.heads)});
    if (!options.vocab.empty()) question.vocab = parse_count("plan: --vocab", options.vocab, 0);
  }
  const std::int64_t on_node = options.hardware ? options.hardware->gpus_per_node : kUsualGpusPerNode;
  question.ranks = !options.ranks.empty() ? parse_count("plan: --ranks", options.ranks)
                   : options.hardware     ? options.hardware->nodes * on_node
                                          : 1;
  question.gpus_per_node = options.gpus_per_node.empty() ? std::min(question.ranks, on_node)
                                                         : parse_count("plan: --gpus-per-node", options.gpus_per_node);
  question.checkpoint_interval = parse_count("plan: --checkpoint-interval", options.interval);
  question.bytes = BytesPerParam::of(parse_count("plan: --bytes-per-param", options.bytes_per_param));
  question.peak_flops = parse_rate("plan: --peak-tflops", options.peak_tflops, 1e12);
  if (!options.bandwidth_gbps.empty())
    question.bytes_per_second = parse_rate("plan: --bandwidth", options.bandwidth_gbps, 1e9);
  return question;
}

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

std::string sweep(const PlanOptions& options) {
  std::vector<Sweep> sweeps;
  for (const std::string& text : options.sweeps)
    sweeps.push_back(parse_sweep(text, {"params", "layers", "hidden", "micro-batch", "seq-len", "ranks", "bandwidth"}));
  std::string lines = options.json ? "" : csv_header(sweeps) + "\n";
  for (const SweepPoint& point : points_of(sweeps)) {
    const PlanOptions here = at_point(options, point);
    const Source source = source_of(here);
    if (source == Source::model) throw UsageError("plan: --sweep: goes with --params or --layers, not with --model");
    const Textbook textbook = textbook_by(question_of(here, source), train_options(here));
    lines += (options.json ? to_json(textbook).dump() : csv_row(point, textbook)) + "\n";
  }
  return lines;
}

std::string plan_by_formulas(const PlanOptions& options, const TextbookQuestion& question) {
  const TrainOptions given = train_options(options);
  const Textbook textbook = textbook_by(question, given);
  const auto choice = choose_by_textbook(textbook, {given.device_bytes, given.host_bytes, given.nvme_bytes});
  if (options.json) {
    Json json = to_json(textbook);
    json["recommended"] =
        choice ? to_json(*choice, textbook) : Json{{"by", "nothing"}, {"why", "--memory device=SIZE says what fits"}};
    return json.dump() + "\n";
  }
  if (choice) return text_of(*choice, textbook) + "\n" + text_of(textbook);
  return text_of(textbook) + "\n--memory device=80GB,host=200GB tells what fits; --model DIR plans to the byte.\n";
}

std::string plan_exactly(const PlanOptions& options, TextbookQuestion question) {
  if (question.ranks > std::numeric_limits<int>::max() || question.gpus_per_node > std::numeric_limits<int>::max())
    throw UsageError("plan: --ranks {} --gpus-per-node {}: too many for --model", question.ranks,
                     question.gpus_per_node);
  const RunSetup setup = in_own_name([&] {
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
  const Textbook textbook = textbook_of(question);
  const RankRoom room = exact_room(setup);
  const PlanMachine machine = options.hardware ? described_machine(*options.hardware)
                                               : probed_machine(setup.options.backend, setup.ranks.ranks);
  std::vector<ExactPlan> plans = exact_plans(setup, room, machine);
  const Recommended recommended = recommend(setup, room, machine, plans);
  if (options.json) {
    Json json = to_json(textbook);
    json["recommended"] = recommended_json(recommended, options.run);
    json["exact"] = exact_json(plans, setup, textbook);
    json["machine"] = machine.rates ? Json(machine.source) : Json(nullptr);
    return json.dump() + "\n";
  }
  const std::string title = fmt::format(
      "{} with {} parameters in {} on {}; {} rank{}, {} on a node; {} x {} tokens a rank and micro-step",
      name_of(config.architecture), short_count(question.params), name_of(setup.options.dtype),
      setup.options.backend == Backend::cuda ? "GPUs" : "the CPU", setup.ranks.ranks, setup.ranks.ranks == 1 ? "" : "s",
      setup.ranks.ranks_on_node, setup.options.micro_batch, setup.options.seq_len);
  std::string text = wrapped(title, "  ") + "\n" + text_of(recommended, options.run) + "\n";
  const auto stage = static_cast<std::size_t>(recommended.setup.options.stage);
  const ExactPlan resident = plans.at(stage * usual_placements().size());
  if (setup.ranks.ranks == 1) std::erase_if(plans, [](const ExactPlan& plan) { return plan.stage > 0; });
  text += text_of(plans);
  if (setup.ranks.ranks == 1) text += "  A rank alone shards nothing: stages 1 to 3 are the same.\n";
  const char* speeds = machine.rates ? "Speeds, each with what bounds it, are predicted for {}" : "No speeds: {}";
  text += "  " + wrapped(fmt::format(fmt::runtime(speeds), machine.source) + ".", "  ");
  return text + "\n" + difference_text(resident, setup, textbook) + "\n" + text_of(textbook);
}

std::string explanation(const PlanOptions& options) {
  const RunLog log = read_run_log(options.explain);
  try {
    return options.json ? line_of(explanation_json(log.digest)) : explanation_text(log.digest);
  } catch (const Error& error) {
    throw Error("plan: --explain {}: {}", options.explain.string(), error.what());
  }
}

std::string answer_to(const PlanOptions& options) {
  if (!options.explain.empty()) return explanation(options);
  if (!options.sweeps.empty()) return sweep(options);
  const Source source = source_of(options);
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
  for (const char* name : kFormulaOptions) add_table_option(*command, *find_option(name), kWhere);
  for (const char* name : kRunOptions)
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
          "combination. Of params, layers, hidden, micro-batch, seq-len, ranks, bandwidth. CSV, or JSON lines")
      ->type_name("NAME=VALUES")
      ->expected(1)
      ->take_all()
      ->group(kFormulas);
  command
      ->add_option("--explain", options->explain, "Instead, put a run beside its plan: the file of zeepo train --log")
      ->type_name("FILE");
  command->add_flag("--json", options->json, "One JSON object");
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
