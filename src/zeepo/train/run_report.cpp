#include "zeepo/train/run_report.h"

#include <cmath>

#include "zeepo/base/error.h"
#include "zeepo/base/numa.h"
#include "zeepo/base/say.h"
#include "zeepo/base/size.h"
#include "zeepo/base/stop_request.h"
#include "zeepo/base/thread_pool.h"
#include "zeepo/train/balance.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/run_sinks.h"
#include "zeepo/train/step_side.h"
#include "zeepo/train/wire_report.h"
#include "zeepo/zero/agreement.h"
#include "zeepo/zero/rank_report.h"

namespace zeepo {
namespace {

// What was asked for, where it is not what nobody asks for; what was chosen for it included.
nlohmann::ordered_json options_json(const TrainOptions& options) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const TrainOption& option : option_table())
    if (const std::string text = option.text(options); option.on_command_line() && text != text_of_default(option))
      json[option.name] = text;
  return json;
}

}  // namespace

RunReport::RunReport(const TrainOptions& options, Communicator& communicator)
    : communicator_(communicator),
      log_(communicator.rank() == 0 ? make_sinks(options) : EventSinks{}),
      silent_(options.no_communication),
      print_every_(options.print_every) {}

void RunReport::plan(const RunPlan& plan, const PlacementChoice& choice, std::int64_t samples, const GpuPlace& place) {
  const RunSetup& setup = plan.setup;
  const TrainOptions& options = setup.options;
  const TuningRange& levels = setup.levels;
  std::int64_t params = 0, trained = 0;
  for (const auto& named : named_parameters(*setup.model)) {
    params += named.parameter->elements();
    if (named.parameter->leaf().trainable()) trained += named.parameter->elements();
  }
  nlohmann::ordered_json event{{"event", "plan"},
                               {"params", params},
                               {"trained_params", trained},
                               {"dtype", name_of(options.dtype)},
                               {"steps", options.steps},
                               {"tokens_per_step", setup.tokens_per_step()},
                               {"world_size", communicator_.size()},
                               {"threads", choose_threads(options.threads, communicator_.local_size())},
                               {"comm", communicator_.name()},
                               {"stage", options.stage},
                               {"samples", samples}};
  for (const Place tier : kPlaces) {
    const auto i = static_cast<std::size_t>(tier);
    event[std::string(name_of(tier))] = {
        {"bytes", to_json(plan.memory.peak[i])}, {"arena_bytes", plan.needed[i]}, {"budget_bytes", plan.budgets[i]}};
  }
  event["options"] = options_json(options);
  event["placement"] = to_json(setup.arrangement());
  event["placement"]["flags"] = setup.flags();
  event["placement"]["chosen"] = options.choose.any();
  if (options.choose.any()) event["placement"].update(to_json(choice));
  event["tuning"] = {{"prefetch_bytes", levels.prefetch_bytes}, {"pieces_under_way", levels.pieces_under_way}};
  if (communicator_.size() > 1) event["communication"] = wire_json(setup, communicator_);
  if (auto balance = balance_json(setup); !balance.is_null()) event["balance"] = std::move(balance);
  if (silent_) event["no_communication"] = true;
  if (auto below = step_below_json(plan); !below.is_null()) event["step_below"] = std::move(below);
  log_.write(event);
  if (!speaks()) return;
  say("{} with {} parameters{} in {}; {} steps of {} x {} tokens\n", name_of(setup.config.architecture), params,
      trained < params ? fmt::format(", {} of them trained,", trained) : "", name_of(options.dtype), options.steps,
      setup.tokens_per_step() / options.seq_len, options.seq_len);
  if (options.backend == Backend::cuda && communicator_.size() > 1)
    say("{} ranks, at most {} on a GPU; what they send {}\n", communicator_.size(), place.most_ranks,
        communicator_.on_device() != nullptr ? "goes by NCCL" : "passes through host memory");
  if (setup.blocks_chosen)
    say("--blocks-per-unit auto: {} block{} of the model a unit\n", options.blocks_per_unit,
        options.blocks_per_unit == 1 ? "" : "s");
  if (const std::string text = wire_text(setup, communicator_); !text.empty()) say("{}\n", text);
  if (const std::string text = balance_text(setup); !text.empty()) say("{}\n", text);
  if (silent_) say("--no-communication: the ranks send each other nothing; losses and weights mean nothing\n");
  say("{}", table_of(plan.memory.peak, plan.budgets));
  if (options.choose.any()) {
    const bool by_time = choice.by == PlacementChoice::By::time;
    say("placement chosen: {}\n  by {}: {}\n", setup.flags(), by_time ? "predicted time" : "bytes", choice.why);
  }
  if (const std::string text = step_below_text(plan); !text.empty()) say("{}\n", text);
}

void RunReport::tiers(Session& session) {
  if (!speaks()) return;
  if (const std::string files = session.lower().description(); !files.empty()) say("files: {}\n", files);
  if (const std::string numa = describe_numa(); !numa.empty()) say("{}\n", numa);
}

void RunReport::begin_steps(std::int64_t steps) {
  steps_ = steps;
  progress_.emplace(steps, last_step_);
}

void RunReport::step(const StepReport& report) {
  last_step_ = report.step;
  if (!log_.empty()) log_.write(to_json(report));
  if (speaks() && (report.step % print_every_ == 0 || report.step == steps_)) progress_->step(report);
}

void RunReport::tuned(std::int64_t step, const Tuner& tuner) {
  const Depths& depths = tuner.depths();
  log_.write({{"event", "tune"},
              {"step", step},
              {"why", tuner.why()},
              {"prefetch_bytes", depths.prefetch_bytes},
              {"pieces_under_way", depths.pieces_under_way},
              {"host_share", depths.host_share},
              {"stalled_share", tuner.measured().share()},
              {"gain", tuner.gain()},
              {"settled", tuner.settled()}});
  if (!speaks()) return;
  if (!tuner.settled()) return progress_->say(fmt::format("tuning: {}", tuner.why()));
  const std::string by_host =
      tuner.tunes_host_share() ? fmt::format(", {:.0f}% stepped by the host", 100 * depths.host_share) : "";
  progress_->say(fmt::format("tuned: prefetch {}, {} pieces under way{}; {:.1f}% of a step waits for transfers",
                             format_size(depths.prefetch_bytes), depths.pieces_under_way, by_host,
                             100 * tuner.measured().share()));
}

void RunReport::stopped(std::int64_t after_step, int signal, bool saved) {
  end_steps();
  const std::string name = name_of_signal(signal);
  log_.write({{"event", "stop"}, {"step", after_step}, {"signal", name}});
  if (speaks())
    say("stopped by {} after step {} of {}; {}\n", name, after_step, steps_,
        saved ? "--resume goes on from its checkpoint" : "no model is saved");
}

void RunReport::fault(std::int64_t step, const std::string& what, const std::string& message) {
  log_.write({{"event", "fault"}, {"step", step}, {"what", what}, {"message", message}});
  if (!speaks()) return;
  tell(fmt::format("zeepo: warning: {}", message));
}

void RunReport::failed(const std::string& message) {
  log_.write({{"event", "fault"}, {"step", last_step_}, {"what", "end"}, {"message", message}});
}

void RunReport::evaluated(std::int64_t step, const Evaluation::Result& result) {
  log_.write({{"event", "eval"},
              {"step", step},
              {"loss", json_number(result.loss)},
              {"tokens", result.tokens},
              {"seconds", result.seconds}});
  if (speaks())
    tell(fmt::format("evaluation after step {}: loss {:.4f}, perplexity {:.4g}", step, result.loss,
                     std::exp(result.loss)));
}

void RunReport::not_finite(std::int64_t step, const StepResult& result, const nlohmann::ordered_json& micro_batches,
                           const std::string& message) {
  log_.write({{"event", "fault"},
              {"step", step},
              {"what", "nan"},
              {"loss", json_number(result.loss)},
              {"grad_norm", json_number(result.grad_norm)},
              {"skipped", result.skipped},
              {"micro_batches", micro_batches},
              {"message", message}});
  if (speaks()) tell(fmt::format("zeepo: warning: {}", message));
}

void RunReport::collect_ranks(Session& session, const MovedBytes& moved) {
  ranks_ = nlohmann::ordered_json::array();
  for (const auto& text : gather_texts(communicator_, rank_report(session, moved.sent, moved.carried).dump()))
    ranks_.push_back(nlohmann::ordered_json::parse(text));
}

void RunReport::summary(const ModelEngine& engine, Session& session, const StepReport& last,
                        const std::string& weights_hash) {
  nlohmann::ordered_json event{{"event", "summary"},
                               {"loss", last.result.loss},
                               {"params", parameter_count(engine.units())},
                               {"world_size", session.communicator().size()},
                               {"weights_hash", weights_hash},
                               {"files", session.lower().description()},
                               {"numa", describe_numa()},
                               {"ranks", ranks_}};
  if (silent_) event["no_communication"] = true;
  log_.write(event);
  if (!speaks()) return;
  for (const Place place : kPlaces)
    if (session.peak(place).total > 0) say("{} memory used: {}\n", name_of(place), describe(session.peak(place)));
}

void RunReport::tell(const std::string& line) { progress_ ? progress_->say(line) : say("{}\n", line); }

void RunReport::checkpoint(std::int64_t step, const std::filesystem::path& path, std::int64_t own_bytes,
                           double seconds) {
  log_.write(
      {{"event", "checkpoint"}, {"step", step}, {"path", path.string()}, {"bytes", own_bytes}, {"seconds", seconds}});
  if (speaks()) tell(fmt::format("checkpoint of step {}: {}", step, path.string()));
}

void RunReport::resumed(std::int64_t step, const std::filesystem::path& path, const std::vector<std::string>& changes) {
  last_step_ = step;
  log_.write({{"event", "resume"}, {"step", step}, {"path", path.string()}, {"changes", changes}});
  if (!speaks()) return;
  tell(fmt::format("going on behind step {}: {}", step, path.string()));
  for (const std::string& change : changes) tell(fmt::format("  {}", change));
}

void RunReport::starts_anew(const std::filesystem::path& directory) {
  if (speaks()) tell(fmt::format("no checkpoint in {}: starting anew", directory.string()));
}

void RunReport::save_failed(std::int64_t step, const std::string& message) {
  const std::string text = fmt::format("checkpoint of step {}: {}", step, message);
  if (speaks()) return fault(step, "checkpoint", text);
  tell(fmt::format("zeepo: warning: rank {}: {}", communicator_.rank(), text));
}

void RunReport::saved(const std::filesystem::path& output) {
  log_.write({{"event", "saved"}, {"path", output.string()}});
  if (speaks()) say("saved to {}\n", output.string());
}

}  // namespace zeepo
