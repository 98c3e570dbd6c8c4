// One training run on a language model, from a Hugging Face directory to a Hugging Face directory.
#pragma once

#include <memory>

#include "zeepo/binding/model_engine.h"
#include "zeepo/comm/gpu_place.h"
#include "zeepo/data/token_data.h"
#include "zeepo/model/language_model.h"
#include "zeepo/model/weight_files.h"
#include "zeepo/model/weight_shards.h"
#include "zeepo/train/options.h"
#include "zeepo/train/report.h"
#include "zeepo/train/step_probe.h"
#include "zeepo/train/trace_file.h"
#include "zeepo/train/tuner.h"
#include "zeepo/zero/session.h"

namespace zeepo {

class Trainer {
 public:
  // Reads the configuration, opens the data and checks that both fit the options, and all ranks each other: what is
  // wrong is said before any work. Every rank makes its own Trainer with its own communicator.
  explicit Trainer(TrainOptions options, Communicator& communicator = alone());
  void run();

 private:
  struct Batch {
    std::vector<std::int32_t> ids, targets;
  };
  // What a step needs of each tier.
  struct Plan {
    std::array<Usage, kPlaces.size()> peak;
    PlaceBytes bytes;  // gaps included
  };

  EngineOptions engine_options() const;
  // Whether the host's part of the step is measured and tuned: asked for, of use, and with room for it.
  bool tunes_host_share() const;
  // On every rank: for the buffers that it takes, and for measuring. The plan must have these buffers.
  bool has_room_to_probe(const Plan& plan) const;
  StepWork step_work() const;
  void probe_steps();
  void propose_host_share(Tuner& tuner, const ModelEngine& engine, double waited_seconds) const;
  nlohmann::ordered_json step_below_json() const;
  std::string step_below_text() const;
  LowerTiers::Options lower_options() const;
  std::int64_t device_bytes_to_use() const;
  PlaceBytes budgets(const Plan& plan) const;
  void check_fits(const Plan& plan, const PlaceBytes& budgets) const;
  std::string what_is_free(Place place) const;
  // Two steps with shapes only.
  Plan plan_memory();
  // --placement auto.
  Plan choose_placement();
  // Levels that the budgets have room for; the plan is of all of them.
  void plan_tuning(Plan& plan);
  void tune(ModelEngine& engine, Tuner& tuner, const StepReport& report, Progress& progress, EventLog& log) const;
  PlaceBytes budgets_to_fill() const;
  Arrangement arrangement() const;
  Plan plan_of(const Arrangement& arrangement);
  std::string ways_out(const PlacementSearch& search, const PlacementSearch::Result& failed);
  std::vector<std::string> ways_for_device(const PlacementSearch& search, const PlacementSearch::Result& failed);
  void fill_device(Plan& plan);
  void train(Session& session, const WeightFiles* files, EventLog& log, TraceFile* traced);
  Batch read_batch(std::int64_t step, std::int64_t micro_step) const;
  void micro_step(ModelEngine& engine, const Batch& batch, std::int64_t step, std::int64_t micro_step);
  StepReport train_step(ModelEngine& engine, std::int64_t step);
  std::int64_t tokens_per_step() const;
  bool speaks() const { return communicator_.rank() == 0; }
  void check_ranks() const;
  void announce(const Plan& plan, const PlaceBytes& budgets, EventLog& log) const;
  void describe_tiers(Session& session) const;
  void summarise(ModelEngine& engine, Session& session, const StepReport& last, EventLog& log) const;
  void save(ModelEngine& engine) const;

  TrainOptions options_;
  Communicator& communicator_;
  ModelConfig config_;
  std::unique_ptr<LanguageModel> model_;
  std::vector<ModelTensor> tensors_;  // of the model, in the order of its modules
  std::optional<TokenFile> data_;
  std::int64_t samples_ = 0;
  std::optional<PlaceBytes> filled_;  // the budgets that the placement was chosen for, the same on all ranks
  TuningRange range_;
  bool room_to_probe_ = true;            // to tune the host's part, until a plan shows that there is none
  std::optional<StepRates> step_rates_;  // where the host's part of the step is tuned
  int pieces_under_way_ = EngineOptions{}.pieces_under_way;  // buffers for them
  GpuPlace place_;                                           // with Backend::cuda, once the run has begun
  CommBytes last_step_sent_;
  LinkBytes last_step_carried_;
};

}  // namespace zeepo
