#include "zeepo/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>

#include "zeepo/autograd/random_state.h"
#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/base/numa.h"
#include "zeepo/base/size.h"
#include "zeepo/data/documents.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/model_directory.h"
#include "zeepo/model/staging_directory.h"
#include "zeepo/nn/layers.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/trace_file.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo {
namespace {

constexpr std::int64_t kDefaultSeqLen = 1024;
constexpr int kHostPieces = 6;  // buffers for those that the host steps beside the device: down, stepped, up

ModelConfig configured(const TrainOptions& options) {
  ModelConfig config = load_config(options.model);
  if (options.dropout) config.embed_dropout = config.residual_dropout = config.attention_dropout = *options.dropout;
  return config;
}

TokenFile open_data(const TrainOptions& options, const ModelConfig& config) {
  std::optional<Tokenizer> tokenizer;
  if (is_text_file(options.data)) tokenizer = Tokenizer::load(options.model / "tokenizer.json");
  std::optional<std::int32_t> eos;
  if (!config.eos.empty() && config.eos.front() < config.vocab) eos = config.eos.front();
  return open_token_data(options.data, config.vocab, tokenizer ? &*tokenizer : nullptr, eos);
}

// Before layers are cut into tiles: files know nothing of them.
std::vector<ModelTensor> tensors_of(const Module& model) {
  std::vector<ModelTensor> tensors;
  for (const auto& [prefix, parameter] : named_parameters(model))
    for (const auto& slice : parameter->slices()) {
      ModelTensor tensor{prefix + slice.name, {}};
      for (int i = 0; i < slice.shape.rank(); ++i) tensor.shape.push_back(slice.shape[i]);
      tensors.push_back(std::move(tensor));
    }
  return tensors;
}

// With little host memory buffers are small: all of them together take at most a quarter of the budget each way.
constexpr std::int64_t kStagingBytes = 4 << 20, kBuffers = 4;
std::int64_t staging_bytes(std::int64_t host_bytes) {
  if (host_bytes <= 0) return kStagingBytes;
  return std::clamp<std::int64_t>(host_bytes / 4 / kBuffers, SwapFile::kPageBytes, kStagingBytes);
}

// `asked` at most, where it is given, in whole multiples of what a piece may be.
std::int64_t piece_elements(std::int64_t host_bytes, std::int64_t asked) {
  constexpr std::int64_t kBytesAnElement = 16;  // at most: gradient, weight and its remainder, two moments
  const std::int64_t least = EngineOptions::kPieceAlignment;
  std::int64_t most = EngineOptions{}.piece_elements;
  if (asked > 0) most = std::clamp(asked / least * least, least, most);
  if (host_bytes <= 0) return most;
  const std::int64_t fitting = host_bytes / 2 / EngineOptions{}.pieces_under_way / kBytesAnElement;
  return std::clamp(fitting / least * least, least, most);
}

// Reading a weight is a collective: the ranks that do not write make the same reads as the one that does.
void join_reads(const std::vector<WeightShard>& shards, const TensorReader& read) {
  std::vector<float> piece;
  for (const auto& shard : shards)
    for (const auto& [name, shape] : shard.tensors) {
      const std::int64_t elements = elements_of(name, shape);
      for (std::int64_t begin = 0; begin < elements; begin += kWritePieceElements) {
        piece.resize(static_cast<std::size_t>(std::min(elements - begin, kWritePieceElements)));
        read(name, begin, piece);
      }
    }
}

// Says now, not after the last step, that the model cannot be saved there.
void check_output(const std::filesystem::path& output) {
  try {
    const StagingDirectory trial(output);
  } catch (const Error& fault) {
    throw Error("train: --output {}: {}", output.string(), fault.what());
  }
}

}  // namespace

Trainer::Trainer(TrainOptions options, Communicator& communicator)
    : options_(std::move(options)), communicator_(communicator) {
  check(options_);
  config_ = configured(options_);
  if (options_.seq_len == 0) options_.seq_len = std::min(kDefaultSeqLen, config_.max_positions);
  if (options_.seq_len > config_.max_positions)
    throw UsageError("train: --seq-len {}: the model has {} positions", options_.seq_len, config_.max_positions);
  model_ = make_model(config_);
  tensors_ = tensors_of(*model_);
  tile_linears(*model_, options_.linear_tiles);
  set_products(*model_, options_.products);
  data_.emplace(open_data(options_, config_));
  samples_ = sample_count(data_->tokens(), options_.seq_len);
  if (options_.steps == 0) options_.steps = std::max<std::int64_t>(1, samples_ * options_.seq_len / tokens_per_step());
  communicator_.set_progress_timeout(options_.timeout_seconds);
  check_ranks();
}

std::int64_t Trainer::tokens_per_step() const {
  return options_.micro_batch * options_.grad_accum * communicator_.size() * options_.seq_len;
}

void Trainer::check_ranks() const {
  std::string model;
  for (const auto& [name, shape] : tensors_) model += fmt::format("{} ({});", name, fmt::join(shape, ", "));
  const auto hash = [](const std::string& value) { return fmt::format("{:x}", std::hash<std::string>{}(value)); };
  std::vector<std::pair<std::string, std::string>> values{
      {"the model's tensors", hash(model)},
      {"config.json", hash(read_text(options_.model / "config.json"))},
      {"the number of tokens", fmt::format("{}", data_->tokens())}};
  for (auto& value : agreed_values(options_)) values.push_back(std::move(value));
  // Which --memory host= bounds beside sub_group_size, and which collectives depend on.
  values.emplace_back("the elements of a piece of optimizer state (--memory host=)",
                      fmt::format("{}", engine_options().piece_elements));
  check_agreement(communicator_, values);
}

EngineOptions Trainer::engine_options() const {
  OptimizerOptions optimizer = options_.optimizer;
  optimizer.seed = options_.seed;
  const bool on_host = options_.backend != Backend::cuda && options_.host_step_share.value_or(1) == 1;
  return {.dtype = options_.dtype,
          .stage = options_.stage,
          .prefetch_bytes = options_.prefetch_bytes,
          .optimizer = optimizer,
          .decay = options_.decay,
          .accumulation = options_.grad_accum,
          .reduce = options_.reduce,
          .sum_order = options_.sum_order,
          .blocks_per_unit = options_.blocks_per_unit,
          .placement = options_.placement,
          .step_below_on = on_host ? StepSide::host : StepSide::device,
          .host_share = on_host ? 0 : options_.host_step_share.value_or(0),
          .host_pieces_under_way =
              !on_host && (tunes_host_share() || options_.host_step_share.value_or(0) > 0) ? kHostPieces : 0,
          .piece_elements = piece_elements(options_.host_bytes, options_.piece_elements),
          .pieces_under_way = pieces_under_way_,
          .clip = options_.clip,
          .step_phase = step_phase(options_),
          .activation_checkpointing = options_.activation_checkpointing,
          .loss_scale = options_.loss_scale};
}

LowerTiers::Options Trainer::lower_options() const {
  LowerTiers::Options lower{.host_bytes = options_.host_bytes,
                            .nvme_paths = {},
                            .nvme_bytes = 0,
                            .staging_bytes = staging_bytes(options_.host_bytes),
                            .link_bytes_per_second = options_.link_bytes_per_second,
                            .nvme_bytes_per_second = options_.nvme_bytes_per_second,
                            .io = options_.io};
  if (options_.placement.in_files()) lower.nvme_paths = options_.nvme_paths;
  return lower;
}

void Trainer::run() {
  if (speaks() && !options_.output.empty()) check_output(options_.output);
  EventLog log(speaks() ? options_.log : "");
  std::optional<WeightFiles> files;
  if (!options_.from_scratch) files.emplace(options_.model);
  if (options_.backend == Backend::cuda) place_ = find_gpu(communicator_);
  Plan plan = options_.choose.any() ? choose_placement() : plan_memory();
  if (tunes_host_share() && !has_room_to_probe(plan)) {
    room_to_probe_ = false;
    plan = plan_memory();
  }
  probe_steps();
  plan_tuning(plan);
  fill_device(plan);
  const PlaceBytes budgets = this->budgets(plan);
  announce(plan, budgets, log);
  check_fits(plan, budgets);
  LowerTiers::Options lower = lower_options();
  std::optional<TraceFile> traced;
  if (!options_.trace.empty()) traced.emplace(options_.trace, communicator_);
  // A GPU's memory, and pinned memory, are taken at once: as much as the plan says. Files too.
  const bool at_once = options_.backend == Backend::cuda;
  const auto planned = [&](Place place) { return plan.bytes[static_cast<std::size_t>(place)]; };
  lower.host_bytes = at_once ? planned(Place::host) : budgets[1];
  lower.nvme_bytes = planned(Place::nvme);
  Session session({.backend = options_.backend,
                   .gpu = place_.gpu,
                   .threads = options_.threads,
                   .device_bytes = at_once ? planned(Place::device) : budgets[0],
                   .ranks_on_node = communicator_.local_size(),
                   .lower = lower,
                   .timeline = traced ? &traced->timeline() : nullptr},
                  communicator_);
  train(session, files ? &*files : nullptr, log, traced ? &*traced : nullptr);
  session.check_empty();
}

void Trainer::train(Session& session, const WeightFiles* files, EventLog& log, TraceFile* traced) {
  Timeline* timeline = traced ? &traced->timeline() : nullptr;
  ModelEngine engine(*model_, session.communicator(), engine_options());
  engine.load(files ? stored_weights(config_, engine.slices(), *files) : random_weights(options_.seed, session.pool()));
  session.restart_peaks();
  describe_tiers(session);
  std::optional<Tuner> tuner;
  if (range_.any()) {
    tuner.emplace(range_);
    engine.set_depths(tuner->depths());
  }

  StepReport last{};
  {
    Progress progress(options_.steps);
    for (std::int64_t step = 1; step <= options_.steps; ++step) {
      const CommBytes before = engine.sent();
      const LinkBytes carried = session.lower().carried();
      if (timeline) timeline->begin_step(step);
      const std::string name = timeline ? fmt::format("{}", step) : "";
      {
        const Span span(timeline, TimelineRow::steps, "step", {name});
        last = train_step(engine, step);
      }
      last_step_sent_ = {engine.sent().all_gather - before.all_gather,
                         engine.sent().reduce_scatter - before.reduce_scatter,
                         engine.sent().all_reduce - before.all_reduce};
      last_step_carried_ = session.lower().carried() - carried;
      log.write(to_json(last));
      if (speaks() && (step % options_.print_every == 0 || step == options_.steps)) progress.step(last);
      if (tuner && !tuner->settled()) tune(engine, *tuner, last, progress, log);
    }
  }
  if (!std::isfinite(last.result.loss))  // fp16 has skipped it
    throw Error(
        "train: the loss of the last step, {}, is {}: the weights overflow in fp16{}. Lower --lr, or use --dtype bf16",
        options_.steps, last.result.loss, options_.output.empty() ? "" : "; nothing is written to --output");
  summarise(engine, session, last, log);
  if (traced) traced->write();
  if (!options_.output.empty()) save(engine);
}

// All ranks are told the same and turn the same knobs.
void Trainer::tune(ModelEngine& engine, Tuner& tuner, const StepReport& report, Progress& progress, EventLog& log) const {
  const Stalls& stalls = report.stalls;
  std::array measured{static_cast<float>(stalls.gather + stalls.host + stalls.nvme), static_cast<float>(report.seconds),
                      static_cast<float>(stalls.host)};
  engine.sum_over_ranks(measured);
  propose_host_share(tuner, engine, stalls.host);
  const Depths before = tuner.depths();
  if (!tuner.after_step({measured[0], measured[1], measured[2], report.result.skipped})) return;
  const Depths& depths = tuner.depths();
  if (depths != before) engine.set_depths(depths);
  log.write({{"event", "tune"},
             {"step", report.step},
             {"prefetch_bytes", depths.prefetch_bytes},
             {"pieces_under_way", depths.pieces_under_way},
             {"host_share", depths.host_share},
             {"stalled_share", tuner.measured().share()},
             {"settled", tuner.settled()}});
  if (speaks() && tuner.settled())
    progress.say(fmt::format("tuned: prefetch {}, {} pieces under way{}; {:.1f}% of a step waits for transfers",
                             format_size(depths.prefetch_bytes), depths.pieces_under_way,
                             step_rates_ ? fmt::format(", {:.0f}% stepped by the host", 100 * depths.host_share) : "",
                             100 * tuner.measured().share()));
}

Trainer::Batch Trainer::read_batch(std::int64_t step, std::int64_t micro_step) const {
  const BatchShape shape{options_.micro_batch, options_.grad_accum, communicator_.size()};
  const auto length = static_cast<std::size_t>(options_.seq_len);
  std::vector<std::int32_t> sample(length + 1);
  Batch batch;
  for (std::int64_t row = 0; row < options_.micro_batch; ++row) {
    const std::int64_t visit = visit_number(shape, step, micro_step, communicator_.rank(), row);
    data_->read(sample_index(visit, samples_, options_.order, options_.seed) * options_.seq_len, sample);
    batch.ids.insert(batch.ids.end(), sample.begin(), sample.end() - 1);
    batch.targets.insert(batch.targets.end(), sample.begin() + 1, sample.end());
  }
  return batch;
}

void Trainer::micro_step(ModelEngine& engine, const Batch& batch, std::int64_t step, std::int64_t micro_step) {
  const auto dropout_key = mix(mix(RngKey{options_.seed}, "dropout"), static_cast<std::uint64_t>(step));
  const auto draw = static_cast<std::uint64_t>(micro_step * communicator_.size() + communicator_.rank());
  RandomState::current() = {.key = mix(dropout_key, draw), .training = true};
  const Shape shape{options_.micro_batch, options_.seq_len};
  engine.micro_step([&] {
    return model_->loss(Tensor::from<std::int32_t>(batch.ids, shape), Tensor::from<std::int32_t>(batch.targets, shape));
  });
  RandomState::current() = {};
}

StepReport Trainer::train_step(ModelEngine& engine, std::int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  const Stalls stalled = engine.stalls();
  const double lr = learning_rate(options_.schedule, step, options_.steps);
  engine.expect_rate(lr);
  for (std::int64_t m = 0; m < options_.grad_accum; ++m) micro_step(engine, read_batch(step, m), step, m);
  const StepResult result = engine.step(lr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  const std::int64_t tokens = tokens_per_step();
  const double rate = static_cast<double>(tokens) / elapsed.count();
  const double flops_a_token = 6 * static_cast<double>(parameter_count(engine.units()));
  return {step, tokens, result, lr, elapsed.count(), rate, flops_a_token * rate / 1e12, engine.stalls() - stalled};
}

void Trainer::announce(const Plan& plan, const PlaceBytes& budgets, EventLog& log) const {
  std::int64_t params = 0;
  for (const auto& named : named_parameters(*model_)) params += named.parameter->elements();
  nlohmann::ordered_json event{{"event", "plan"},
                               {"params", params},
                               {"dtype", name_of(options_.dtype)},
                               {"steps", options_.steps},
                               {"tokens_per_step", tokens_per_step()},
                               {"world_size", communicator_.size()},
                               {"comm", communicator_.name()},
                               {"stage", options_.stage},
                               {"samples", samples_}};
  for (const Place place : kPlaces) {
    const auto i = static_cast<std::size_t>(place);
    event[std::string(name_of(place))] = {
        {"bytes", to_json(plan.peak[i])}, {"arena_bytes", plan.bytes[i]}, {"budget_bytes", budgets[i]}};
  }
  event["placement"] = to_json(arrangement());
  event["placement"]["chosen"] = options_.choose.any();
  event["tuning"] = {{"prefetch_bytes", range_.prefetch_bytes}, {"pieces_under_way", range_.pieces_under_way}};
  if (!options_.placement.optimizer.on_device()) event["step_below"] = step_below_json();
  log.write(event);
  if (!speaks()) return;
  fmt::print(stderr, "{} with {} parameters in {}; {} steps of {} x {} tokens\n", name_of(config_.architecture), params,
             name_of(options_.dtype), options_.steps, tokens_per_step() / options_.seq_len, options_.seq_len);
  if (options_.backend == Backend::cuda && communicator_.size() > 1)
    fmt::print(stderr, "{} ranks, at most {} on a GPU; what they send {}\n", communicator_.size(), place_.most_ranks,
               communicator_.on_device() != nullptr ? "goes by NCCL" : "passes through host memory");
  fmt::print(stderr, "{}", table_of(plan.peak, budgets));
  if (options_.choose.any()) fmt::print(stderr, "placement chosen: {}\n", flags_of(arrangement()));
  if (const std::string text = step_below_text(); !text.empty()) fmt::print(stderr, "{}\n", text);
}

// What the memory is like, where there is something to say.
void Trainer::describe_tiers(Session& session) const {
  if (!speaks()) return;
  if (const std::string files = session.lower().description(); !files.empty()) fmt::print(stderr, "files: {}\n", files);
  if (const std::string numa = describe_numa(); !numa.empty()) fmt::print(stderr, "{}\n", numa);
}

void Trainer::summarise(ModelEngine& engine, Session& session, const StepReport& last, EventLog& log) const {
  engine.settle();
  auto ranks = nlohmann::ordered_json::array();
  for (const auto& text : gather_texts(communicator_, rank_report(session, last_step_sent_, last_step_carried_).dump()))
    ranks.push_back(nlohmann::ordered_json::parse(text));
  const std::string hash = engine.weights_hash();
  log.write({{"event", "summary"},
             {"loss", last.result.loss},
             {"params", parameter_count(engine.units())},
             {"world_size", session.communicator().size()},
             {"weights_hash", hash},
             {"files", session.lower().description()},
             {"numa", describe_numa()},
             {"ranks", ranks}});
  if (!speaks()) return;
  for (const Place place : kPlaces)
    if (session.peak(place).total > 0)
      fmt::print(stderr, "{} memory used: {}\n", name_of(place), describe(session.peak(place)));
}

void Trainer::save(ModelEngine& engine) const {
  const auto read = [&](const std::string& name, std::int64_t begin, std::span<float> out) {
    engine.read(name, begin, out);
  };
  const ModelDirectoryOptions output{.dtype = options_.output_dtype.value_or(options_.dtype)};
  if (!speaks()) return join_reads(cut_into_shards(tensors_, output.dtype, output.shard_bytes), read);
  write_model_directory(options_.model, options_.output, tensors_, read, output);
  fmt::print(stderr, "saved to {}\n", options_.output.string());
}

}  // namespace zeepo
