#include "zeepo/train/checkpointing.h"

#include <algorithm>
#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/checkpoint/sealed_json.h"
#include "zeepo/comm/node_map.h"
#include "zeepo/train/option_table.h"
#include "zeepo/zero/rank_talk.h"

namespace zeepo {
namespace {

constexpr const char* kNone = "there is no checkpoint of this step; training goes on";
constexpr std::int64_t kSampledTokens = 1 << 16;  // at the begin and the end of the data

std::map<std::string, std::string> texts_of(const TrainOptions& options) {
  std::map<std::string, std::string> texts;
  for (const TrainOption& option : option_table())
    if (std::string text = option.text(options); !text.empty()) texts[option.name] = std::move(text);
  return texts;
}

std::vector<Manifest::Weight> weights_of(const UnitPlan& units) {
  std::vector<Manifest::Weight> weights;
  const WeightPlaces places(units);
  for (const auto& [name, placed] : places.by_name()) {
    Manifest::Weight weight{name, {}};
    for (int i = 0; i < placed.slice.shape.rank(); ++i) weight.shape.push_back(placed.slice.shape[i]);
    weights.push_back(std::move(weight));
  }
  return weights;
}

}  // namespace

std::map<std::string, std::string> origin_of(const TrainOptions& options, const TrainingData& data) {
  const std::string config = read_text(options.model / "config.json");
  const std::int64_t tokens = data.tokens.tokens(), some = std::min(tokens, kSampledTokens);
  std::vector<std::int32_t> sampled(static_cast<std::size_t>(2 * some));
  data.tokens.read(0, std::span(sampled).first(static_cast<std::size_t>(some)));
  data.tokens.read(tokens - some, std::span(sampled).last(static_cast<std::size_t>(some)));
  return {{"config.json", checksum_of(std::as_bytes(std::span(config)))},
          {"tokens of --data", fmt::format("{}, {}", tokens, checksum_of(std::as_bytes(std::span(sampled))))},
          {"tokens of --data that count", data.mask ? fmt::format("{}", data.mask->counted()) : "all"}};
}

std::vector<int> nodes_of(const RunSetup& setup) {
  std::vector<int> nodes(static_cast<std::size_t>(setup.ranks.ranks), 0);
  const NodeMap map = NodeMap::of(AbsentRanks(setup.ranks), setup.options.wire.node_size);
  if (!map.matter()) return nodes;
  for (std::size_t rank = 0; rank < nodes.size(); ++rank) nodes[rank] = map.node_of(static_cast<int>(rank));
  return nodes;
}

Checkpointing::Checkpointing(const RunPlan& plan, const TokenBatches& batches,
                             std::map<std::string, std::string> origin, ModelEngine& engine, RunReport& report,
                             FileOperations& operations)
    : setup_(plan.setup),
      options_(plan.setup.options),
      batches_(batches),
      origin_(std::move(origin)),
      engine_(engine),
      report_(report),
      operations_(operations),
      rank_(plan.setup.ranks.rank),
      ranks_(plan.setup.ranks.ranks) {
  if (rank_ == 0) directory_ = std::make_unique<CheckpointDirectory>(operations, options_.checkpoint_dir);
}

// Of a run that ends early.
Checkpointing::~Checkpointing() {
  if (!file_) return;
  engine_.snapshot().cancel();  // its threads write into the file
  if (directory_) directory_->abandon(manifest_.step);
}

void Checkpointing::after_step(const StepReport& step, const Depths& depths) {
  if (file_) look_after(false);
  const std::int64_t every = options_.checkpoint_every;
  const bool improved = best_ && best_->step == step.step;
  if (!improved && (every == 0 || step.step % every != 0)) return;
  if (file_) look_after(true);
  begin(step, depths);
}

void Checkpointing::evaluated(std::int64_t step, double loss) {
  evaluated_ = {step, loss};
  if (std::isfinite(loss) && (!best_ || loss < best_->loss)) best_ = evaluated_;
}

void Checkpointing::finish() {
  if (file_) look_after(true);
}

bool Checkpointing::save_last(const StepReport& step, const Depths& depths) {
  if (file_) look_after(true);
  if (last_begun_ != step.step || last_failed_) begin(step, depths);
  if (file_) look_after(true);
  return !last_failed_;
}

float Checkpointing::sum_over_ranks(float number) {
  std::vector<float> numbers{number};
  if (ranks_ > 1) zeepo::sum_over_ranks(engine_.collectives(), numbers);
  return numbers[0];
}

// Whether this step of a save has failed on any rank.
bool Checkpointing::any_failed(const std::string& failure) {
  if (!failure.empty()) report_.save_failed(last_begun_, failure);
  return sum_over_ranks(failure.empty() ? 0.0f : 1.0f) > 0;
}

void Checkpointing::begin(const StepReport& step, const Depths& depths) {
  last_begun_ = step.step;
  begun_ = std::chrono::steady_clock::now();
  last_failed_ = true;
  std::string failure;
  try {
    if (directory_) directory_->begin(step.step);
  } catch (const std::exception& error) {
    failure = error.what();
  }
  if (any_failed(failure)) return report_.fault(step.step, "checkpoint", kNone);
  manifest_ = {};
  manifest_.step = step.step;
  manifest_.samples = batches_.visited(step.step);
  manifest_.loss = step.result.loss;
  if (evaluated_ && evaluated_->step == step.step && std::isfinite(evaluated_->loss))
    manifest_.eval_loss = evaluated_->loss;
  manifest_.best = best_;
  manifest_.progress = engine_.progress();
  manifest_.depths = depths;
  manifest_.ranks = ranks_;
  manifest_.nodes = nodes_of(setup_);
  manifest_.balance = {setup_.balanced.speeds, setup_.balanced.rows};
  StateFormat format = format_of(engine_.plan().options);
  format.finite_weights = true;
  manifest_.moments = format.moments;
  manifest_.dtype = name_of(options_.dtype);
  manifest_.options = texts_of(options_);
  manifest_.origin = origin_;
  if (directory_) manifest_.weights = weights_of(engine_.units());
  file_ = std::make_unique<RankFile>(operations_, partial_path(options_.checkpoint_dir, step.step), rank_,
                                     engine_.snapshot().parts(), format);
  engine_.snapshot().begin(
      [this](std::size_t part, const StateViews& states, const View& param) { file_->write(part, states, param); });
}

void Checkpointing::look_after(bool wait) {
  if (wait) {
    engine_.settle();
    engine_.snapshot().finish();
  }
  engine_.snapshot().advance();
  const bool done = file_->done() && engine_.snapshot().finished();
  if (sum_over_ranks(done ? 1.0f : 0.0f) < static_cast<float>(ranks_)) return;
  const bool failed = any_failed(file_->failure());
  const std::int64_t bytes = file_->bytes();
  file_.reset();
  std::string failure;
  if (directory_ && failed) {
    directory_->abandon(manifest_.step);
  } else if (directory_) {
    try {
      directory_->publish(manifest_, options_.model);
    } catch (const std::exception& error) {
      failure = error.what();
      directory_->abandon(manifest_.step);
    }
  }
  last_failed_ = any_failed(failure) || failed;
  if (last_failed_) {
    best_ = saved_best_;  // a later one may be the lowest that is there
    return report_.fault(manifest_.step, "checkpoint", kNone);
  }
  const bool improved = manifest_.best && manifest_.best->step == manifest_.step;
  if (improved) saved_best_ = manifest_.best;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begun_;
  report_.checkpoint(manifest_.step, checkpoint_path(options_.checkpoint_dir, manifest_.step), bytes, elapsed.count());
  try {
    if (directory_ && improved) directory_->name_best(manifest_.step);
    if (directory_) remove_old();
  } catch (const std::exception& error) {
    report_.fault(manifest_.step, "checkpoint",
                  fmt::format("an older checkpoint cannot be removed, or the best not named: {}", error.what()));
  }
}

void Checkpointing::remove_old() {
  const auto best = saved_best_ ? std::optional(saved_best_->step) : std::nullopt;
  const KeepRule rule{manifest_.step, options_.checkpoint_keep, best, damaged_};
  for (const auto& path : directory_->keep(rule))
    report_.fault(manifest_.step, "checkpoint",
                  fmt::format("a checkpoint of a later step, which this run has not written, is set aside as {}; it "
                              "is removed once the run has passed that step",
                              path.string()));
}

}  // namespace zeepo
