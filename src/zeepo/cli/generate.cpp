#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/generate.h"
#include "zeepo/cli/inference_options.h"
#include "zeepo/cli/number_options.h"
#include "zeepo/infer/batch_generator.h"
#include "zeepo/model/safetensors_writer.h"
#include "zeepo/train/trace_file.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo::cli {
namespace {

std::vector<std::int32_t> parse_ids(std::string_view text) {
  std::vector<std::int32_t> ids;
  const char* const last = text.data() + text.size();
  for (const char* at = text.data();; ++at) {
    std::int32_t id = 0;
    const auto [end, code] = std::from_chars(at, last, id);
    if (code != std::errc{} || (end != last && *end != ','))
      throw UsageError("generate: --ids {}: write numbers with commas between, like 1,2,3", text);
    ids.push_back(id);
    if (end == last) return ids;
    at = end;
  }
}

void check_options(const GenerateRequest& options) {
  const Sampling& sampling = options.generate.sampling;
  const int given = (options.prompt ? 1 : 0) + (options.ids.empty() ? 0 : 1) + (options.batch_file.empty() ? 0 : 1);
  if (given != 1) throw UsageError("generate: give the prompt as --prompt TEXT, --ids 1,2,3 or --batch-file FILE");
  if (!options.batch_file.empty() && !options.logits.empty())
    throw UsageError("generate: --logits is for one prompt; leave out --batch-file");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    throw UsageError("generate: --top-p {}: must be above 0 and at most 1", sampling.top_p);
}

std::optional<Tokenizer> load_tokenizer(const std::filesystem::path& model, const GenerateRequest& options,
                                        bool speaks) {
  if (!options.prompt) return find_usable_tokenizer(model, speaks);
  auto tokenizer = find_tokenizer(model);
  if (!tokenizer)
    throw Error("{}: not there; give the prompt as --ids, or add the tokenizer", (model / "tokenizer.json").string());
  return tokenizer;
}

// What has been generated, as it comes, on the one rank that speaks.
class Speech {
 public:
  Speech(const Tokenizer* tokenizer, bool at_once) : at_once_(at_once) {
    if (tokenizer) stream_.emplace(*tokenizer);
  }
  void token(std::int32_t token) { show(stream_ ? stream_->push(token) : fmt::format("{} ", token)); }
  void finish() {
    if (stream_) show(stream_->finish());
  }
  const std::string& text() const { return text_; }

 private:
  void show(const std::string& piece) {
    text_ += piece;
    if (!at_once_) return;
    fmt::print("{}", piece);
    std::fflush(stdout);
  }

  bool at_once_;
  std::optional<StreamDecoder> stream_;
  std::string text_;
};

double seconds_per_token(const Generation& result) {
  return result.ids.size() < 2 ? 0 : result.seconds_decode / static_cast<double>(result.ids.size() - 1);
}

void tell_of_speed(const Generation& result) {
  const double seconds = seconds_per_token(result);
  if (result.drafted > 0) say("{} of {} drafted tokens accepted\n", result.accepted, result.drafted);
  say("{} tokens: first after {:.2f} s, then {:.1f} tokens/s\n", result.ids.size(), result.prefill.seconds,
      seconds > 0 ? 1 / seconds : 0.0);
}

void run(const InferenceOptions& asked, GenerateRequest options, Communicator& communicator) {
  if (!options.batch_file.empty()) return run_batch(asked, options, communicator);
  InferenceOptions where = asked;
  const ModelConfig config = load_config(where.model);
  const bool speaks = communicator.rank() == 0;
  const auto tokenizer = load_tokenizer(where.model, options, speaks);
  const auto prompt = options.prompt ? tokenizer->encode(*options.prompt, AddSpecial::yes) : parse_ids(options.ids);
  check_prompt(config, prompt, options.generate.max_new_tokens);
  if (!options.ignore_eos) options.generate.stop = config.eos;
  Speech speech(tokenizer ? &*tokenizer : nullptr, speaks && !options.json);

  std::optional<SafetensorsWriter> logits_file;  // where it cannot be, that is said before the weights are read
  if (speaks && !options.logits.empty())
    logits_file.emplace(options.logits,
                        std::vector<SafetensorsWriter::Tensor>{
                            {"logits", DType::f32, {static_cast<std::int64_t>(prompt.size()), config.vocab}}});
  const auto logits_of_prompt = [&](ModelEngine& engine, LanguageModel& model) {
    return options.logits.empty() ? std::vector<float>{} : prompt_logits(engine, model, prompt);
  };
  std::optional<TraceFile> traced;
  if (!options.trace.empty()) where.timeline = &traced.emplace(options.trace, communicator).timeline();
  BatchLimits limits = limits_of_one(prompt.size(), options.generate.max_new_tokens, options.chunk_of_pages());
  limits.kv = where.kv;
  limits.draft_tokens = options.generate.draft_tokens;
  const bool pages = where.kv != Place::device;  // which a cache in one piece cannot do
  Inference inference(where, communicator, [&](ModelEngine& engine, LanguageModel& model) {
    (void)logits_of_prompt(engine, model);
    if (pages)
      rehearse(engine, model, kv_dtype(where, engine), limits);
    else
      (void)generate(engine, model, kv_dtype(where, engine), prompt, options.generate, [](std::int32_t) {});
  });
  if (speaks && (where.choose.params || where.choose.prefetch))
    say("placement chosen: {}\n", placement_flags(inference.plan().options));
  tell_of_copies(inference, communicator);
  const auto logits = logits_of_prompt(inference.engine(), inference.model());
  const auto on_token = [&](std::int32_t token) { speech.token(token); };
  Generation result;
  if (pages) {
    BatchPass pass(inference.engine(), inference.model(), kv_dtype(where), limits);
    if (speaks)
      result = generate_in_pages(pass, config, limits, prompt, options.generate, on_token);
    else
      result.prefill = pass.follow();
  } else {
    result = generate(inference.engine(), inference.model(), kv_dtype(where), prompt, options.generate, on_token);
  }
  speech.finish();
  if (where.timeline) where.timeline->end_steps();
  inference.engine().settle();
  const nlohmann::ordered_json summary = generation_summary(inference, result);
  if (speaks && options.json) {
    const Timing timing{result.prefill.seconds, result.prefill.seconds, seconds_per_token(result)};
    nlohmann::ordered_json line = result_json(result.ids, prompt.size(), timing);
    if (tokenizer) line["text"] = speech.text();
    fmt::print("{}\n{}\n", line.dump(), summary.dump());
  } else if (speaks) {
    fmt::print("\n");
    std::fflush(stdout);  // before what follows on stderr
    tell_of_speed(result);
  }
  // Files come last: what has been generated is not lost where one cannot be written.
  if (logits_file) {
    logits_file->write(logits);
    logits_file->commit();
  }
  if (traced) traced->write();
}

}  // namespace

std::optional<Tokenizer> find_tokenizer(const std::filesystem::path& model) {
  const auto path = model / "tokenizer.json";
  if (!std::filesystem::exists(path)) return std::nullopt;
  return Tokenizer::load(path);
}

std::optional<Tokenizer> find_usable_tokenizer(const std::filesystem::path& model, bool speaks) {
  try {
    return find_tokenizer(model);
  } catch (const Error& fault) {
    if (speaks) say("zeepo: warning: results without text: {}\n", fault.what());
    return std::nullopt;
  }
}

nlohmann::ordered_json result_json(const std::vector<std::int32_t>& ids, std::size_t prompt_tokens,
                                   const Timing& timing) {
  return {{"ids", ids},
          {"text", nullptr},
          {"prompt_tokens", prompt_tokens},
          {"seconds_to_first_token", timing.first_token},
          {"seconds_prefill", timing.prefill},
          {"seconds_per_token", timing.decode_per_token},
          {"tokens_per_second", timing.decode_per_token > 0 ? 1 / timing.decode_per_token : 0.0}};
}

nlohmann::ordered_json generation_summary(Inference& inference, const Generation& passes) {
  Session& session = inference.session();
  const MovedBytes& moved = passes.last_pass().moved;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const auto& text : gather_texts(session.communicator(), rank_report(session, moved.sent, moved.carried).dump()))
    ranks.push_back(nlohmann::ordered_json::parse(text));
  const PassReport& pass = passes.median_pass();
  const FilesInUse files = inference.files();
  return {{"event", "summary"},
          {"params", parameter_count(inference.engine().units())},
          {"world_size", session.communicator().size()},
          {"placement", placement_flags(inference.plan().options)},
          {"files", {{"in_place_bytes", files.in_place_bytes}, {"copied_bytes", files.copied_bytes}}},
          {"seconds_per_step", pass.seconds},
          {"stall_seconds", {{"gather", pass.stalls.gather}, {"host", pass.stalls.host}, {"nvme", pass.stalls.nvme}}},
          {"speculation", {{"drafted", passes.drafted}, {"accepted", passes.accepted}}},
          {"ranks", std::move(ranks)}};
}

void add_generate(CLI::App& program) {
  CLI::App* command =
      program.add_subcommand("generate", "Continue a prompt with a model from a Hugging Face directory");
  const auto where = std::make_shared<InferenceArguments>(*command);
  const auto options = std::make_shared<GenerateRequest>();
  auto& sampling = options->generate.sampling;
  command->add_option("--prompt", options->prompt, "Text to continue");
  command->add_option("--ids", options->ids, "The prompt as token ids, like 1,2,3");
  command->add_option("--batch-file", options->batch_file,
                      "JSON lines, each with \"prompt\" or \"ids\" and optionally \"max_new_tokens\": many prompts at "
                      "a time, results in the order of the file");
  using Whole = WholeNumbers<std::int64_t>;
  add_whole(*command, "--max-batch", options->max_batch, Whole{1, kMostSequences},
            "Prompts of --batch-file that run at a time")
      ->default_str(fmt::format("{}", options->max_batch));
  add_whole(*command, "--prefill-chunk", options->prefill_chunk, Whole{1, kLargestChunk},
            "Tokens of prompts in a pass; a longer prompt takes several [512 with --batch-file or --offload-kv, else "
            "8192]");
  command->add_option("--trace", options->trace, "Write what each thread did in the last passes, for Perfetto");
  std::int64_t& max_new_tokens = options->generate.max_new_tokens;
  add_whole(*command, "--max-new-tokens", max_new_tokens, Whole{}, "Tokens to generate, at most")
      ->default_str(fmt::format("{}", max_new_tokens));
  add_number(*command, "--temperature", sampling.temperature, "0: the most likely token each time")
      ->default_str(fmt::format("{}", sampling.temperature));
  add_whole(*command, "--top-k", sampling.top_k, Whole{}, "Sample among the k most likely; 0: all")
      ->default_str(fmt::format("{}", sampling.top_k));
  add_number(*command, "--top-p", sampling.top_p, "Sample among the most likely that reach p")
      ->default_str(fmt::format("{}", sampling.top_p));
  add_whole(*command, "--seed", sampling.seed, WholeNumbers<std::uint64_t>{}, "Of the sampling")
      ->default_str(fmt::format("{}", sampling.seed));
  command->add_flag("--ignore-eos", options->ignore_eos, "Go on after the model's end token");
  command->add_option("--logits", options->logits, "Write the prompt's logits to this safetensors file");
  command->add_flag("--json", options->json, "Print JSON lines: the result, then a summary");
  command->footer(
      "Examples: zeepo generate --model llama --prompt 'Once upon a time' --max-new-tokens 100\n"
      "          zeepo generate --model larger-than-the-gpu --placement auto --prompt 'Once upon a time'\n"
      "          zeepo generate --model llama --batch-file prompts.jsonl --json\n"
      "          mpirun -n 4 zeepo generate --model llama --prompt 'Once upon a time'");
  command->callback([where, options] {
    check_options(*options);
    const InferenceOptions asked = where->options();
    options->generate.draft_tokens = where->draft_tokens();
    if (options->prefill_chunk) options->generate.prefill_tokens = *options->prefill_chunk;
    run_as_ranks(detect_launch(), where->ranks(),
                 [&](Communicator& communicator) { run(asked, *options, communicator); });
  });
}

}  // namespace zeepo::cli
