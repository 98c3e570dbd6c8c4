#include "zeepo/train/training_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/comm/silent/silent_communicator.h"
#include "zeepo/model/initial_weights.h"
#include "zeepo/train/stopping.h"

namespace zeepo {
TrainingRun::TrainingRun(const RunPlan& plan, TokenBatches& batches, Session& session, RunReport& report,
                         ModelSaving& saving, Timeline* timeline)
    : plan_(plan),
      options_(plan.setup.options),
      batches_(batches),
      session_(session),
      report_(report),
      saving_(saving),
      timeline_(timeline),
      silent_(options_.no_communication ? std::make_unique<SilentCommunicator>(session.communicator()) : nullptr),
      engine_(*plan.setup.model, silent_ ? *silent_ : session.communicator(), engine_options(plan.setup)),
      page_faults_(session, engine_, report),
      nans_(options_, batches, report) {}

void TrainingRun::load(const WeightFiles* files) {
  if (files) {
    const WeightCheck check{options_.dtype, fmt::format("train: in {}", options_.model.string()),
                            "use another --dtype, or look for broken weights"};
    const WeightSource stored = stored_weights(plan_.setup.config, engine_.slices(), *files);
    engine_.load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      stored(slice, begin, out);
      check(slice.name, begin, out);
    });
  } else {
    engine_.load(random_weights(options_.seed, session_.pool()));
  }
  session_.restart_peaks();
  report_.tiers(session_);
}

bool TrainingRun::resume(const std::map<std::string, std::string>& origin) {
  const auto point = resume_run(plan_.setup, origin, engine_, session_.communicator(), report_);
  if (!point) return false;
  resumed_ = *point;
  if (checkpoints_) checkpoints_->restore(point->best, point->damaged);
  batches_.resume(point->step, point->samples);
  session_.restart_peaks();
  report_.tiers(session_);
  return true;
}

void TrainingRun::keep_checkpoints(const std::map<std::string, std::string>& origin, FileOperations& operations) {
  checkpoints_ = std::make_unique<Checkpointing>(plan_, batches_, origin, engine_, report_, operations);
}

void TrainingRun::train() {
  Tuning tuning(plan_, engine_, report_);
  if (resumed_.step > 0) tuning.start_at(resumed_.depths);
  StepReport last{};
  last.step = resumed_.step;
  last.result.loss = static_cast<float>(resumed_.loss);
  MovedBytes moved, late;  // of the last step, and before what is left of its update
  const StopRequest::Grace grace(options_.stop_grace_seconds);
  std::optional<StopRequest::Watch> watch(StopRequest::Watcher::work);
  report_.begin_steps(options_.steps);
  for (std::int64_t number = resumed_.step + 1; number <= options_.steps; ++number) {
    const MovedBytes before = engine_.moved().in_time;
    if (timeline_) timeline_->begin_step(number);
    const std::string name = timeline_ ? fmt::format("{}", number) : "";
    {
      const Span span(timeline_, TimelineRow::steps, "step", {name});
      last = step(number);
    }
    moved = engine_.moved().in_time - before;
    late = engine_.moved().late;
    report_.step(last);
    if (report_asked_after(last.result)) page_faults_.tell(number);
    if (const int signal = stop_asked_after(last.result)) stop(last, tuning.depths(), signal);
    saving_.watch_room(number, report_);
    tuning.after_step(last);
    if (const int signal = evaluate(number)) stop(last, tuning.depths(), signal);
    if (checkpoints_) checkpoints_->after_step(last, tuning.depths());
  }
  if (checkpoints_ && last.step > resumed_.step) checkpoints_->save_last(last, tuning.depths());
  watch.reset();
  // One that came after the last losses were sent. Several ranks have a heartbeat, which ends the job.
  if (const int signal = StopRequest::signal(); signal != 0 && plan_.setup.ranks.ranks == 1)
    stop(last, tuning.depths(), signal);
  report_.end_steps();
  if (!std::isfinite(last.result.loss) && options_.on_nan == OnNan::stop)  // fp16 has skipped it
    throw Error(
        "train: the loss of the last step, {}, is {}: the weights overflow in fp16{}. Lower --lr, or use --dtype bf16",
        options_.steps, last.result.loss, options_.output.empty() ? "" : "; nothing is written to --output");
  engine_.settle();
  report_.collect_ranks(session_, moved + (engine_.moved().late - late));
  if (timeline_) timeline_->end_steps();
  if (saving_.wanted()) saving_.save(engine_, options_.steps, report_);
  std::string hash;  // without communication no rank has the weights
  if (!options_.no_communication)
    hash = engine_.weights_hash(WeightCheck{options_.dtype, fmt::format("train: after step {}", options_.steps),
                                            "lower --lr, or use another --dtype"});
  page_faults_.tell(last.step);  // pages are read up to here
  report_.summary(engine_, session_, last, hash);
}

StepReport TrainingRun::step(std::int64_t number) {
  const auto start = std::chrono::steady_clock::now();
  const Stalls stalled = engine_.stalls();
  const double lr = learning_rate(options_.schedule, number, options_.steps);
  engine_.expect_rate(lr);
  const std::optional<std::int64_t> counted = batches_.counted_targets(number);
  const std::optional<float> divisor = counted ? std::optional(batches_.divisor(*counted)) : batches_.divisor();
  for (std::int64_t m = 0; m < options_.grad_accum; ++m) {
    const TokenBatches::Ids ids = batches_.read(number, m);
    run_micro_step(engine_, plan_.setup, number, m, [&] { return ids.on_device(batches_.shape(), divisor); });
  }
  const StepResult result = apply_step(number, lr);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;

  const std::int64_t tokens = plan_.setup.tokens_per_step();
  const double rate = static_cast<double>(tokens) / elapsed.count();
  // A frozen weight has no product for a gradient of its own.
  const double flops_a_token = 4 * static_cast<double>(parameter_count(engine_.units())) +
                               2 * static_cast<double>(trained_count(engine_.units()));
  return {number,
          tokens,
          result,
          lr,
          elapsed.count(),
          rate,
          flops_a_token * rate / 1e12,
          engine_.stalls() - stalled,
          counted,
          session_.take_recent_peaks()};
}

StepResult TrainingRun::apply_step(std::int64_t number, double lr) {
  try {
    const StepResult result = engine_.step(lr, step_note(page_faults_.any()));
    nans_.after(number, result);
    return result;
  } catch (const NotFinite& fault) {
    nans_.tell(number, fault.result(), "training stops");
    if (checkpoints_) checkpoints_->finish();
    throw;
  }
}

int TrainingRun::evaluate(std::int64_t number) {
  const std::int64_t every = options_.eval_every;
  if (!evaluation_ || (number != options_.steps && (every == 0 || number % every != 0))) return 0;
  const Evaluation::Result result = evaluation_->run(engine_);
  if (result.signal != 0) return result.signal;
  report_.evaluated(number, result);
  if (checkpoints_) checkpoints_->evaluated(number, result.loss);
  return 0;
}

void TrainingRun::stop(const StepReport& last, const Depths& depths, int signal) {
  const bool saved = checkpoints_ && checkpoints_->save_last(last, depths);
  engine_.settle();
  report_.stopped(last.step, signal, saved);
  if (saved)
    throw Stopped(signal, kStoppedAndSaved, "train: stopped by {} after step {}; --resume goes on from its checkpoint",
                  name_of_signal(signal), last.step);
  throw Stopped(signal, std::nullopt, "train: stopped by {} after step {}", name_of_signal(signal), last.step);
}

}  // namespace zeepo
