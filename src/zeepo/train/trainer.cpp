#include "zeepo/train/trainer.h"

#include <algorithm>
#include <filesystem>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/model/model_tensors.h"
#include "zeepo/train/balance.h"
#include "zeepo/train/evaluation.h"
#include "zeepo/train/gather_route.h"
#include "zeepo/train/model_saving.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/step_side.h"
#include "zeepo/train/stopping.h"
#include "zeepo/train/trace_file.h"
#include "zeepo/train/training_run.h"
#include "zeepo/zero/agreement.h"

namespace zeepo {
namespace {

// A GPU's memory, and pinned memory, are taken at once: as much as the plan says. Files too.
Session::Options session_options(const RunPlan& plan, const GpuPlace& place, Timeline* timeline) {
  const TrainOptions& options = plan.setup.options;
  const bool at_once = options.backend == Backend::cuda;
  LowerTiers::Options lower = lower_options(plan.setup);
  lower.host_bytes = (at_once ? plan.memory.bytes : plan.budgets)[static_cast<std::size_t>(Place::host)];
  lower.nvme_bytes = plan.memory.bytes[static_cast<std::size_t>(Place::nvme)];
  return {.backend = options.backend,
          .gpu = place.gpu,
          .batch_invariant = options.batch_invariant ? BatchInvariant::yes : BatchInvariant::no,
          .threads = options.threads,
          .device_bytes = (at_once ? plan.memory.bytes : plan.budgets)[static_cast<std::size_t>(Place::device)],
          .ranks_on_node = plan.setup.ranks.ranks_on_node,
          .lower = lower,
          .timeline = timeline};
}

// States in files need a directory.
void check_directories(const TrainOptions& options) {
  const Placement& placement = options.placement;
  const char* const in_files = placement.params.in_files()            ? "--offload-param"
                               : placement.optimizer.in_files()       ? "--offload-optimizer"
                               : placement.activations == Place::nvme ? "--offload-activations"
                                                                      : nullptr;
  if (in_files != nullptr && options.nvme_paths.empty())
    throw UsageError("train: {}: what lives in files needs --nvme-path DIR, on a fast disk", in_files);
  if (in_files == nullptr && !options.choose.any()) return;
  std::error_code ignored;
  for (const auto& path : options.nvme_paths)
    if (!std::filesystem::is_directory(path, ignored))
      throw Error("train: --nvme-path {}: there is no such directory", path.string());
}

// What ends the run is in its log, too.
template <class F>
void tell_of_the_end(RunReport& report, const F& work) {
  try {
    work();
  } catch (const Stopped&) {
    throw;  // told, as is the next
  } catch (const NotFinite&) {
    throw;
  } catch (const std::exception& error) {
    report.failed(error.what());
    throw;
  }
}

}  // namespace

Trainer::Trainer(TrainOptions options, Communicator& communicator, ChoosePlacement choose)
    : setup_(make_setup(std::move(options), shape_of(communicator))),
      options_(setup_.options),
      communicator_(communicator),
      choose_(std::move(choose)),
      tensors_(model_tensors(setup_.config)) {
  check_directories(options_);
  data_.emplace(open_training_data(options_.data, options_.model, setup_.config));
  if (!options_.eval_data.empty()) {
    eval_data_.emplace(open_training_data(options_.eval_data, options_.model, setup_.config));
    if (const std::int64_t tokens = eval_data_->tokens.tokens(); tokens <= options_.seq_len)
      throw Error("train: --eval-data {}: {} tokens: must be more than --seq-len {}", options_.eval_data.string(),
                  tokens, options_.seq_len);
  }
  const std::int64_t samples = sample_count(data_->tokens.tokens(), options_.seq_len);
  if (options_.steps == 0)
    setup_.options.steps = std::max<std::int64_t>(1, samples * options_.seq_len / setup_.tokens_per_step());
  communicator_.set_progress_timeout(options_.timeout_seconds);
  check_ranks();
}

void Trainer::check_ranks() const {
  std::string model;
  for (const auto& [name, shape] : tensors_) model += fmt::format("{} ({});", name, fmt::join(shape, ", "));
  const auto hash = [](const std::string& value) { return fmt::format("{:x}", std::hash<std::string>{}(value)); };
  std::vector<std::pair<std::string, std::string>> values{
      {"the model's tensors", hash(model)},
      {"config.json", hash(read_text(options_.model / "config.json"))},
      {"the number of tokens", fmt::format("{}", data_->tokens.tokens())},
      {"the number of tokens that count in the loss", data_->mask ? fmt::format("{}", data_->mask->counted()) : "all"}};
  if (eval_data_) {
    values.emplace_back("the number of tokens of --eval-data", fmt::format("{}", eval_data_->tokens.tokens()));
    values.emplace_back("the number of tokens of --eval-data that count in the loss",
                        eval_data_->mask ? fmt::format("{}", eval_data_->mask->counted()) : "all");
  }
  for (auto& value : agreed_values(options_)) values.push_back(std::move(value));
  check_agreement(communicator_, values);
}

void Trainer::run() {
  ModelSaving saving(options_, tensors_, communicator_);
  saving.check_places();  // now, not after the last step
  RunReport report(options_, communicator_);
  std::optional<WeightFiles> files;
  if (!options_.from_scratch) files.emplace(options_.model);
  const GpuPlace place = options_.backend == Backend::cuda ? find_gpu(communicator_) : GpuPlace{};
  const RunSetup balanced = balance_ranks(setup_, saved_speeds(setup_, communicator_), place, communicator_);
  const RunSetup routed = choose_gather_route(balanced, communicator_);
  const auto rooms = gather_rooms(communicator_, room_of(tier_options(options_), place, communicator_.local_size()));
  const PlacementChoice choice = choose_(routed, rooms, communicator_);
  const RunSetup chosen = give_snapshots_room(choice.setup, rooms);
  check_agreement(communicator_, {{"the placement chosen", flags_of(chosen.arrangement())},
                                  {"the host memory that buffers are sized for", fmt::format("{}", chosen.host_room)}});
  const RunPlan plan =
      plan_run(chosen, rooms, [&](const RunSetup& planned) { return measure_steps(planned, place, communicator_); });
  TokenBatches batches(*data_, plan.setup);
  std::optional<Evaluation> evaluation;
  if (eval_data_) evaluation.emplace(*eval_data_, plan.setup);
  report.plan(plan, choice, batches.samples(), place);
  check_fits(plan, place);
  std::optional<TraceFile> traced;
  if (!options_.trace.empty()) traced.emplace(options_.trace, communicator_);
  Timeline* timeline = traced ? &traced->timeline() : nullptr;
  bool save_failed = false;
  Session session(session_options(plan, place, timeline), communicator_);
  {
    TrainingRun run(plan, batches, session, report, saving, timeline);
    FileOperations operations;
    const auto origin = origin_of(options_, *data_);
    if (evaluation) run.evaluate_by(*evaluation);
    if (!options_.checkpoint_dir.empty()) run.keep_checkpoints(origin, operations);
    tell_of_the_end(report, [&] {
      if (!options_.resume.wanted || !run.resume(origin)) run.load(files ? &*files : nullptr);
      saving.check_places();  // swap files have taken their room
      run.train();
    });
    save_failed = run.last_save_failed();
  }
  if (traced) traced->write();
  session.check_empty();
  report.check_log();
  if (save_failed)
    throw EndedWith(kLastSaveFailed, "train: the checkpoint of the last step could not be written: see above");
}

}  // namespace zeepo
