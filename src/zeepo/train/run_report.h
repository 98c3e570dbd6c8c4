// What a training run says, to people on stderr and to programs in the log: the plan, its steps, what was tuned, the
// summary.
//
// All ranks make the same calls, since some of what is said comes from all; rank 0 alone says it.
#pragma once

#include <optional>

#include "zeepo/binding/model_engine.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/metrics/event_sinks.h"
#include "zeepo/train/evaluation.h"
#include "zeepo/train/placement_choice.h"
#include "zeepo/train/report.h"
#include "zeepo/train/tuner.h"
#include "zeepo/zero/session.h"

namespace zeepo {

class RunReport {
 public:
  // Makes the log, the tables and the page that the options ask for.
  RunReport(const TrainOptions& options, Communicator& communicator);

  void plan(const RunPlan& plan, const PlacementChoice& choice, std::int64_t samples, const GpuPlace& place);
  // What the memory is like, where there is something to say.
  void tiers(Session& session);
  void begin_steps(std::int64_t steps);
  void step(const StepReport& report);
  void evaluated(std::int64_t step, const Evaluation::Result& result);
  void tuned(std::int64_t step, const Tuner& tuner);
  void end_steps() { progress_.reset(); }
  // By a signal; also ends the steps.
  void stopped(std::int64_t after_step, int signal, bool saved);
  // Something that does not end the run.
  void fault(std::int64_t step, const std::string& what, const std::string& message);
  // Something that ends it, for the log; the error says it to people.
  void failed(const std::string& message);
  // A loss or gradients that are not numbers, with the samples of the micro-batches where that arose.
  void not_finite(std::int64_t step, const StepResult& result, const nlohmann::ordered_json& micro_batches,
                  const std::string& message);
  // A collective, after settle(): what the ranks have used, for the summary. `moved` is what the last step has moved,
  // its update included.
  void collect_ranks(Session& session, const MovedBytes& moved);
  void saved(const std::filesystem::path& output);
  // A checkpoint is whole: the bytes of this rank's file, and the seconds since it was begun. The run goes on from one.
  void checkpoint(std::int64_t step, const std::filesystem::path& path, std::int64_t own_bytes, double seconds);
  void resumed(std::int64_t step, const std::filesystem::path& path, const std::vector<std::string>& changes);
  void starts_anew(const std::filesystem::path& directory);
  // Of a checkpoint; said by the rank where it happened.
  void save_failed(std::int64_t step, const std::string& message);
  void summary(const ModelEngine& engine, Session& session, const StepReport& last, const std::string& weights_hash);
  // Throws Error when the log, or what else the events go to, is not complete.
  void check_log() const { log_.check(); }

 private:
  void tell(const std::string& line);
  bool speaks() const { return communicator_.rank() == 0; }

  Communicator& communicator_;
  EventSinks log_;  // on rank 0
  bool silent_;     // with --no-communication
  std::int64_t print_every_, steps_ = 0;
  std::int64_t last_step_ = 0;        // that was told
  std::optional<Progress> progress_;  // while there are steps
  nlohmann::ordered_json ranks_;      // as collected
};

}  // namespace zeepo
