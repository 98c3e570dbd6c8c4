#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/base/say.h"
#include "zeepo/base/size.h"
#include "zeepo/base/stop_request.h"
#include "zeepo/cli/commands.h"
#include "zeepo/cli/generate.h"
#include "zeepo/cli/inference_options.h"
#include "zeepo/cli/number_options.h"
#include "zeepo/infer/batch_generator.h"
#include "zeepo/serve/openai_server.h"
#include "zeepo/train/option_values.h"

namespace zeepo::cli {
namespace {

constexpr std::int64_t kUsualPositions = 4096, kLeastPositions = 512;  // of a text, for the size of the KV cache
constexpr std::int64_t kMostPlaces = 4096;

struct Options {
  OpenAiServer::Options server;
  std::string name, max_body = "4MiB";
  std::filesystem::path key_file;
  std::int64_t prefill_chunk = 512, kv_tokens = 0, draft_tokens = 0;
};

std::string name_of_model(const std::filesystem::path& directory) {
  const auto path = std::filesystem::absolute(directory).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

std::vector<BatchLimits> limits_for(const Options& options, const ModelConfig& config, Place kv) {
  BatchLimits limits;
  limits.sequences = options.server.max_batch;
  limits.prefill_tokens = options.prefill_chunk;
  limits.kv = kv;
  limits.draft_tokens = options.draft_tokens;
  if (options.kv_tokens > 0) return limits_to_try(limits, options.kv_tokens, options.kv_tokens);
  const std::int64_t usual = std::min(config.max_positions, kUsualPositions);
  return limits_to_try(limits, usual * limits.sequences, std::min(config.max_positions, kLeastPositions));
}

// What the page shows of where things live, by the plan.
nlohmann::ordered_json about(Inference& inference, const BatchLimits& limits, const std::string& name, bool chats) {
  const InferencePlan& plan = inference.plan();
  nlohmann::ordered_json tiers = nlohmann::ordered_json::array();
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    nlohmann::ordered_json tier{{"name", name_of(place)}};
    for (const Kind kind : kKinds) tier["bytes"][std::string(name_of(kind))] = plan.memory.peak[i][kind];
    tier["total"] = plan.memory.bytes[i];
    tier["budget"] = plan.budgets[i];
    if (place == Place::nvme) {  // those take no room of the budget
      const std::int64_t own = inference.files().in_place_bytes;
      tier["in_model_files"] = own;
      tier["bytes"]["params"] = plan.memory.peak[i][Kind::params] + own;
      tier["total"] = plan.memory.bytes[i] + own;
    }
    tiers.push_back(std::move(tier));
  }
  return {{"model", name},
          {"chat", chats},
          {"params", parameter_count(inference.engine().units())},
          {"dtype", name_of(plan.options.dtype)},
          {"ranks", inference.session().communicator().size()},
          {"placement", placement_flags(plan.options)},
          {"max_batch", limits.sequences},
          {"kv_positions", limits.positions()},
          {"tiers", std::move(tiers)}};
}

Tokenizer tokenizer_of(const std::filesystem::path& model) {
  if (auto tokenizer = find_tokenizer(model)) return std::move(*tokenizer);
  throw Error("serve: {}: not there; clients send and want text", (model / "tokenizer.json").string());
}

// On rank 0.
void listen(Inference& inference, BatchPass& pass, const BatchLimits& limits, const Options& options,
            const InferenceOptions& where, std::optional<ChatTemplate> chat) {
  const std::string name = options.name.empty() ? name_of_model(where.model) : options.name;
  const std::int64_t places = options.server.max_batch + options.server.max_queue;
  const ServedModel model{
      name, inference.model().config(), tokenizer_of(where.model), std::move(chat), limits.positions(), places};
  BatchGenerator batch(pass, model.config, limits);
  TextQueue queue(places);
  OpenAiServer server(options.server, model, queue, about(inference, limits, name, model.chat.has_value()));
  server.start();
  fmt::print("listening on {}\n", server.address());
  std::fflush(stdout);
  const bool alone = inference.session().communicator().size() == 1;
  queue.serve(
      batch, [&] { return pass.told_to_end(); },
      [&] {
        if (!alone) batch.idle();
      });
  server.finish();
  batch.finish();
}

// From the end of loading on a signal is watched for; `watch` outlives the ranks' farewell.
void run(const InferenceOptions& where, const Options& options, Communicator& communicator,
         std::optional<StopRequest::Watch>& watch) {
  const ModelConfig config = load_config(where.model);
  (void)tokenizer_of(where.model);  // what is wrong with it is said before the weights are read
  auto chat = ChatTemplate::load(where.model);
  const std::vector<BatchLimits> all_limits = limits_for(options, config, where.kv);
  Inference inference(where, communicator, rehearsals(where, all_limits));
  const BatchLimits& limits = all_limits[inference.planned()];
  const bool speaks = communicator.rank() == 0;
  if (speaks) say("{}; KV cache for {} tokens\n", placement_flags(inference.plan().options), limits.positions());
  tell_of_copies(inference, communicator);
  watch.emplace(StopRequest::Watcher::work);
  BatchPass pass(inference.engine(), inference.model(), kv_dtype(where), limits);
  if (speaks)
    listen(inference, pass, limits, options, where, std::move(chat));
  else
    (void)pass.follow();
  inference.engine().settle();
}

void check_options(Options& options) {
  const std::int64_t most = parse_size_option("serve: --max-body", options.max_body);
  if (most < 1) throw UsageError("serve: --max-body {}: must be at least 1 byte", options.max_body);
  options.server.body_bytes = static_cast<std::size_t>(most);
  if (!options.key_file.empty()) options.server.keys = ApiKeys::load(options.key_file);
  if (!has_http_server())
    throw Error("serve: this build has no HTTP server; install libcpp-httplib-dev and build again");
}

}  // namespace

void add_serve(CLI::App& program) {
  CLI::App* command = program.add_subcommand("serve", "Serve a model over HTTP, as OpenAI does");
  const auto where = std::make_shared<InferenceArguments>(*command);
  const auto options = std::make_shared<Options>();
  OpenAiServer::Options& server = options->server;
  constexpr const char* kServer = "Server";
  command->add_option("--host", server.host, "Address to listen on; others than this machine's own let others ask")
      ->capture_default_str()
      ->group(kServer);
  constexpr int kLastPort = 65535;
  add_whole(*command, "--port", server.port, WholeNumbers<int>{0, kLastPort}, "0: a free one")
      ->default_str(fmt::format("{}", server.port))
      ->group(kServer);
  command->add_option("--name", options->name, "What clients call the model [the directory's name]")->group(kServer);
  command->add_option("--api-key-file", options->key_file, "Keys of which clients must show one, one a line [none]")
      ->group(kServer);
  command->add_option("--max-body", options->max_body, "Of a request")->capture_default_str()->group(kServer);
  using Whole = WholeNumbers<std::int64_t>;
  add_whole(*command, "--max-batch", server.max_batch, Whole{1, kMostPlaces}, "Texts that run at a time")
      ->default_str(fmt::format("{}", server.max_batch))
      ->group(kServer);
  add_whole(*command, "--max-queue", server.max_queue, Whole{0, kMostPlaces},
            "Texts that wait for a place; the next one gets 429")
      ->default_str(fmt::format("{}", server.max_queue))
      ->group(kServer);
  add_whole(*command, "--prefill-chunk", options->prefill_chunk, Whole{1, kLargestChunk}, "Tokens of prompts in a pass")
      ->default_str(fmt::format("{}", options->prefill_chunk))
      ->group(kServer);
  constexpr std::int64_t kMostPositions = std::int64_t{1} << 40;
  add_whole(*command, "--kv-tokens", options->kv_tokens, Whole{1, kMostPositions},
            "Tokens that the KV cache holds, of all texts together [4096 a text, or less where less fits]")
      ->group(kServer);
  command->footer(
      "Examples: zeepo serve --model llama --port 8000\n"
      "          zeepo serve --model larger-than-the-gpu --placement auto --api-key-file keys.txt\n"
      "          curl localhost:8000/v1/completions -d '{\"prompt\":\"Once upon\",\"max_tokens\":20}'");
  command->callback([where, options] {
    check_options(*options);
    const InferenceOptions asked = where->options();
    options->draft_tokens = where->draft_tokens();
    std::optional<StopRequest::Watch> watch;
    run_as_ranks(detect_launch(), where->ranks(),
                 [&](Communicator& communicator) { run(asked, *options, communicator, watch); });
  });
}

}  // namespace zeepo::cli
