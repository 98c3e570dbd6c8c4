#include "zeepo/train/trainer.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "zeepo/autograd/random_state.h"
#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/data/documents.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/model/model_directory.h"
#include "zeepo/model/staging_directory.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo {
namespace {

constexpr std::int64_t kDefaultSeqLen = 1024;

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

// Says now, not after the last step, that the model cannot be saved there.
void check_output(const std::filesystem::path& output) {
  try {
    const StagingDirectory trial(output);
  } catch (const Error& fault) {
    throw Error("train: --output {}: {}", output.string(), fault.what());
  }
}

}  // namespace

Trainer::Trainer(TrainOptions options) : options_(std::move(options)) {
  check(options_);
  config_ = configured(options_);
  if (options_.seq_len == 0) options_.seq_len = std::min(kDefaultSeqLen, config_.max_positions);
  if (options_.seq_len > config_.max_positions)
    throw UsageError("train: --seq-len {}: the model has {} positions", options_.seq_len, config_.max_positions);
  model_ = make_model(config_);
  data_.emplace(open_data(options_, config_));
  samples_ = sample_count(data_->tokens(), options_.seq_len);
  if (options_.steps == 0)
    options_.steps = std::max<std::int64_t>(1, samples_ / (options_.micro_batch * options_.grad_accum));
}

EngineOptions Trainer::engine_options() const {
  return {.dtype = options_.dtype,
          .optimizer = options_.optimizer,
          .decay = options_.decay,
          .accumulation = options_.grad_accum,
          .clip = options_.clip,
          .activation_checkpointing = options_.activation_checkpointing};
}

Trainer::Plan Trainer::plan_memory() {
  Session session = Session::dry();
  EngineOptions options = engine_options();
  options.accumulation = std::min<std::int64_t>(options.accumulation, 2);  // the third is as the second
  {
    Engine engine(*model_, session.communicator(), options);
    engine.load(random_weights(options_.seed));  // pieces of weights on their way in and out must fit too
    session.memory().restart_peak();
    const auto size = static_cast<std::size_t>(options_.micro_batch * options_.seq_len);
    const Batch blank{std::vector<std::int32_t>(size), std::vector<std::int32_t>(size)};
    for (std::int64_t m = 0; m < options.accumulation; ++m) micro_step(engine, blank, 1, m);
    (void)engine.step(0);
  }
  return {session.memory().peak(), session.memory().high_water()};
}

void Trainer::run() {
  if (!options_.output.empty()) check_output(options_.output);
  EventLog log(options_.log);
  std::optional<WeightFiles> files;
  if (!options_.from_scratch) files.emplace(options_.model);
  const Plan plan = plan_memory();
  announce(plan, log);

  Session session({.threads = options_.threads, .device_bytes = options_.device_bytes});
  if (plan.arena_bytes > session.memory().budget_bytes())
    throw Error(
        "train: a step needs {} of memory ({}), the budget is {}; lower --micro-batch or --seq-len, or try "
        "--activation-checkpointing",
        format_size(static_cast<std::int64_t>(plan.arena_bytes)), describe(plan.peak),
        format_size(static_cast<std::int64_t>(session.memory().budget_bytes())));
  Engine engine(*model_, session.communicator(), engine_options());
  engine.load(files ? stored_weights(config_, engine.slices(), *files) : random_weights(options_.seed, session.pool()));
  session.memory().restart_peak();

  StepReport last{};
  {
    Progress progress(options_.steps);
    for (std::int64_t step = 1; step <= options_.steps; ++step) {
      last = train_step(engine, step);
      log.write(to_json(last));
      progress.step(last);
    }
  }
  summarise(engine, session, last, log);
  if (!options_.output.empty()) save(engine);
}

Trainer::Batch Trainer::read_batch(std::int64_t step, std::int64_t micro_step) const {
  const BatchShape shape{options_.micro_batch, options_.grad_accum, 1};
  const auto length = static_cast<std::size_t>(options_.seq_len);
  std::vector<std::int32_t> sample(length + 1);
  Batch batch;
  for (std::int64_t row = 0; row < options_.micro_batch; ++row) {
    const std::int64_t visit = visit_number(shape, step, micro_step, 0, row);
    data_->read(sample_index(visit, samples_, options_.order, options_.seed) * options_.seq_len, sample);
    batch.ids.insert(batch.ids.end(), sample.begin(), sample.end() - 1);
    batch.targets.insert(batch.targets.end(), sample.begin() + 1, sample.end());
  }
  return batch;
}

void Trainer::micro_step(Engine& engine, const Batch& batch, std::int64_t step, std::int64_t micro_step) {
  const auto dropout_key = mix(mix(RngKey{options_.seed}, "dropout"), static_cast<std::uint64_t>(step));
  RandomState::current() = {.key = mix(dropout_key, static_cast<std::uint64_t>(micro_step)), .training = true};
  const Shape shape{options_.micro_batch, options_.seq_len};
  engine.micro_step([&] {
    return model_->loss(Tensor::from<std::int32_t>(batch.ids, shape), Tensor::from<std::int32_t>(batch.targets, shape));
  });
  RandomState::current() = {};
}

StepReport Trainer::train_step(Engine& engine, std::int64_t step) {
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t m = 0; m < options_.grad_accum; ++m) micro_step(engine, read_batch(step, m), step, m);
  const double lr = learning_rate(options_.schedule, step, options_.steps);
  const StepResult result = engine.step(lr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  const std::int64_t tokens = options_.micro_batch * options_.grad_accum * options_.seq_len;
  const double rate = static_cast<double>(tokens) / elapsed.count();
  const double flops_a_token = 6 * static_cast<double>(engine.parameter_count());
  return {step, tokens, result, lr, elapsed.count(), rate, flops_a_token * rate / 1e12};
}

void Trainer::announce(const Plan& plan, EventLog& log) const {
  std::int64_t params = 0;
  for (const auto& named : named_parameters(*model_)) params += named.parameter->elements();
  log.write({{"event", "plan"},
             {"params", params},
             {"dtype", name_of(options_.dtype)},
             {"steps", options_.steps},
             {"tokens_per_step", options_.micro_batch * options_.grad_accum * options_.seq_len},
             {"samples", samples_},
             {"device", {{"bytes", to_json(plan.peak)}, {"arena_bytes", plan.arena_bytes}}}});
  fmt::print(stderr, "{} with {} parameters in {}; {} steps of {} x {} tokens\n", name_of(config_.architecture), params,
             name_of(options_.dtype), options_.steps, options_.micro_batch * options_.grad_accum, options_.seq_len);
  fmt::print(stderr, "memory for a step: {}: {}\n", format_size(static_cast<std::int64_t>(plan.arena_bytes)),
             describe(plan.peak));
}

void Trainer::summarise(const Engine& engine, Session& session, const StepReport& last, EventLog& log) const {
  log.write({{"event", "summary"},
             {"loss", last.result.loss},
             {"params", engine.parameter_count()},
             {"world_size", session.communicator().size()},
             {"weights_hash", engine.weights_hash()},
             {"ranks", nlohmann::ordered_json::array({rank_report(session)})}});
  fmt::print(stderr, "memory used: {}\n", describe(session.memory().peak()));
}

void Trainer::save(const Engine& engine) const {
  std::vector<ModelTensor> tensors;
  for (const auto& [prefix, parameter] : named_parameters(*model_))
    for (const auto& [name, shape] : parameter->slices()) {
      ModelTensor tensor{prefix + name, {}};
      for (int i = 0; i < shape.rank(); ++i) tensor.shape.push_back(shape[i]);
      tensors.push_back(std::move(tensor));
    }
  const auto read = [&](const std::string& name, std::int64_t begin, std::span<float> out) {
    engine.read(name, begin, out);
  };
  write_model_directory(options_.model, options_.output, tensors, read,
                        {.dtype = options_.output_dtype.value_or(options_.dtype)});
  fmt::print(stderr, "saved to {}\n", options_.output.string());
}

}  // namespace zeepo
