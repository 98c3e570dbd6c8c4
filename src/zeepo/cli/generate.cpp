#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/size.h"
#include "zeepo/binding/model_engine.h"
#include "zeepo/cli/commands.h"
#include "zeepo/comm/launch.h"
#include "zeepo/data/tokenizer.h"
#include "zeepo/infer/generator.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/safetensors_writer.h"
#include "zeepo/train/option_values.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo::cli {
namespace {

// All of it is kept on the device: where the device's memory is the host's, the device has all of it.
constexpr std::int64_t kNothingInHostMemory = 1;

struct Options {
  std::filesystem::path model;
  std::optional<std::string> prompt;
  std::string ids, dtype, device, memory;
  std::filesystem::path logits;
  GenerateOptions generate;
  bool ignore_eos = false, json = false, batch_invariant = false;
  int threads = 0;
};

std::vector<std::int32_t> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (const char* at = text.data(); at < text.data() + text.size();) {
    std::int32_t id = 0;
    const auto [end, code] = std::from_chars(at, text.data() + text.size(), id);
    if (code != std::errc{} || (end != text.data() + text.size() && *end != ','))
      throw UsageError("generate: --ids {}: write numbers with commas between, like 1,2,3", text);
    ids.push_back(id);
    at = end + (end != text.data() + text.size());
  }
  return ids;
}

void check_options(const Options& options) {
  const auto& [max_new_tokens, sampling, stop] = options.generate;
  if (options.prompt.has_value() == !options.ids.empty())
    throw UsageError("generate: give the prompt as --prompt TEXT or as --ids 1,2,3");
  if (max_new_tokens < 0) throw UsageError("generate: --max-new-tokens {}: must be at least 0", max_new_tokens);
  if (!(sampling.temperature >= 0))
    throw UsageError("generate: --temperature {}: must be at least 0", sampling.temperature);
  if (sampling.top_k < 0) throw UsageError("generate: --top-k {}: must be at least 0", sampling.top_k);
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    throw UsageError("generate: --top-p {}: must be above 0 and at most 1", sampling.top_p);
}

std::optional<Tokenizer> load_tokenizer(const Options& options) {
  const auto path = options.model / "tokenizer.json";
  if (std::filesystem::exists(path)) return Tokenizer::load(path);
  if (options.prompt) throw Error("{}: not there; give the prompt as --ids, or add the tokenizer", path.string());
  return std::nullopt;
}

void save_logits(const std::filesystem::path& path, ModelEngine& engine, LanguageModel& model,
                 const std::vector<std::int32_t>& prompt) {
  SafetensorsWriter file(path,
                         {{"logits", DType::f32, {static_cast<std::int64_t>(prompt.size()), model.config().vocab}}});
  file.write(prompt_logits(engine, model, prompt));
  file.commit();
}

// Everything once, with shapes only.
void plan_memory(LanguageModel& model, const Options& options, DType dtype, const std::vector<std::int32_t>& prompt,
                 Communicator& communicator, std::int64_t budget_bytes) {
  Session session = Session::dry(communicator);
  {
    ModelEngine engine(model, session.communicator(), {.use = Use::infer, .dtype = dtype});
    engine.load(random_weights(0));
    if (!options.logits.empty()) (void)prompt_logits(engine, model, prompt);
    GenerateOptions once = options.generate;
    once.stop = {0};  // the token that a dry pass chooses: the later ones need no more memory than the first
    (void)generate(engine, model, dtype, prompt, once, [](std::int32_t) {});
  }
  const auto bytes = static_cast<std::int64_t>(session.memory().high_water());
  if (bytes > budget_bytes)
    throw Error(
        "generate: the model and its cache need {} of memory ({}), the budget is {}; try --dtype bf16 or a lower "
        "--max-new-tokens",
        format_size(bytes), describe(session.memory().peak()), format_size(budget_bytes));
}

// Every rank would run the whole model and print.
void refuse_ranks(const Launch& launch) {
  if (launch.size > 1)
    throw UsageError(
        "generate: started as {} ranks, and it runs on one; start it without mpirun or srun, or with one rank "
        "(mpirun -n 1)",
        launch.size);
}

void run(Options options) {
  refuse_ranks(detect_launch());
  check_options(options);
  const std::string device = "generate: --device";
  const Backend backend =
      options.device.empty() ? default_backend() : parse_choice(device, options.device, device_choices());
  check_device(device, backend);
  const Budgets budgets = options.memory.empty() ? Budgets{} : parse_budgets("generate: --memory", options.memory);
  if (budgets.host > 0 || budgets.nvme > 0)
    throw UsageError("generate: --memory {}: it keeps everything on the device yet; write device=SIZE", options.memory);
  const DType dtype =
      options.dtype.empty() ? default_dtype(backend) : parse_dtype_option("generate: --dtype", options.dtype);
  const ModelConfig config = load_config(options.model);
  const auto tokenizer = load_tokenizer(options);
  const auto prompt = options.prompt ? tokenizer->encode(*options.prompt, AddSpecial::yes) : parse_ids(options.ids);
  check_prompt(config, prompt, options.generate.max_new_tokens);
  if (!options.ignore_eos) options.generate.stop = config.eos;

  const auto model = make_model(config);
  const WeightFiles files(options.model);
  Session session({.backend = backend,
                   .batch_invariant = options.batch_invariant ? BatchInvariant::yes : BatchInvariant::no,
                   .threads = options.threads,
                   .device_bytes = budgets.device,
                   .lower = {.host_bytes = kNothingInHostMemory, .nvme_paths = {}}});
  plan_memory(*model, options, dtype, prompt, session.communicator(),
              static_cast<std::int64_t>(session.memory().budget_bytes()));
  ModelEngine engine(*model, session.communicator(), {.use = Use::infer, .dtype = dtype});
  engine.load(stored_weights(config, engine.slices(), files));
  if (!options.logits.empty()) save_logits(options.logits, engine, *model, prompt);

  std::optional<StreamDecoder> stream;
  if (tokenizer) stream.emplace(*tokenizer);
  std::string text;
  const auto show = [&](const std::string& piece) {
    text += piece;
    if (options.json) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  };
  const auto result = generate(engine, *model, dtype, prompt, options.generate, [&](std::int32_t token) {
    show(stream ? stream->push(token) : fmt::format("{} ", token));
  });
  if (stream) show(stream->finish());

  const auto count = static_cast<double>(result.ids.size());
  const double seconds_per_token = count > 1 ? result.seconds_decode / (count - 1) : 0;
  if (!options.json) {
    fmt::print("\n");
    std::fflush(stdout);  // before what follows on stderr
    say("{} tokens: first after {:.2f} s, then {:.1f} tokens/s\n", result.ids.size(), result.seconds_prefill,
        seconds_per_token > 0 ? 1 / seconds_per_token : 0.0);
    return;
  }
  nlohmann::ordered_json line{{"ids", result.ids}};
  line["text"] = tokenizer ? nlohmann::ordered_json(text) : nlohmann::ordered_json(nullptr);
  line["prompt_tokens"] = prompt.size();
  line["seconds_prefill"] = result.seconds_prefill;
  line["seconds_per_token"] = seconds_per_token;
  line["tokens_per_second"] = seconds_per_token > 0 ? 1 / seconds_per_token : 0.0;
  fmt::print("{}\n", line.dump());
  const nlohmann::ordered_json summary{
      {"event", "summary"},
      {"params", parameter_count(engine.units())},
      {"world_size", session.communicator().size()},
      {"ranks",
       nlohmann::ordered_json::array({rank_report(session, engine.moved().all().sent, session.lower().carried())})}};
  fmt::print("{}\n", summary.dump());
}

}  // namespace

void add_generate(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("generate", "Continue a prompt with a model from a Hugging Face directory");
  const auto options = std::make_shared<Options>();
  auto& sampling = options->generate.sampling;
  command->add_option("--model", options->model, "A Hugging Face directory: config.json, safetensors, tokenizer.json")
      ->required();
  command->add_option("--prompt", options->prompt, "Text to continue");
  command->add_option("--ids", options->ids, "The prompt as token ids, like 1,2,3");
  command->add_option("--max-new-tokens", options->generate.max_new_tokens)->capture_default_str();
  command->add_option("--temperature", sampling.temperature, "0: the most likely token each time")
      ->capture_default_str();
  command->add_option("--top-k", sampling.top_k, "Sample among the k most likely; 0: all")->capture_default_str();
  command->add_option("--top-p", sampling.top_p, "Sample among the most likely that reach p")->capture_default_str();
  command->add_option("--seed", sampling.seed)->capture_default_str();
  command->add_flag(
      "--batch-invariant", options->batch_invariant,
      "On a GPU, logits that do not depend on how a prompt is cut or batched, as on a CPU always: slower");
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the model's end token");
  command->add_option("--logits", options->logits, "Write the prompt's logits to this safetensors file");
  command->add_option("--dtype", options->dtype, "fp32, bf16 or fp16 [bf16 on a GPU, else fp32]");
  command->add_option("--device", options->device, "cpu or cuda [cuda where there is a GPU]");
  command->add_option("--memory", options->memory, "Budget, as device=4GiB [what the machine has]");
  command->add_option("--threads", options->threads, "[OMP_NUM_THREADS, or all cores]")
      ->check(CLI::Range(1, kMaxThreads));
  command->add_flag("--json", options->json, "Print JSON lines: the result, then a summary");
  command->callback([options] { run(*options); });
}

}  // namespace zeepo::cli
