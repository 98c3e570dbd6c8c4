// Saves the trained model in --output; where that fails, again for --output-retry seconds, then in --output-fallback.
//
// Rank 0 writes. Reading weights is a collective, so all ranks call save(), and agree before each piece whether the
// writing goes on: a fault of the disk leaves no rank waiting, and ends none.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "zeepo/binding/model_engine.h"
#include "zeepo/model/model_directory.h"
#include "zeepo/model/staging_directory.h"
#include "zeepo/train/options.h"
#include "zeepo/train/run_report.h"
#include "zeepo/train/weight_check.h"

namespace zeepo {

class ModelSaving {
 public:
  using FreeBytes = std::function<std::optional<std::int64_t>(const std::filesystem::path& target)>;
  // Borrows the first three. Throws Error when a file that the model takes along cannot be read.
  ModelSaving(const TrainOptions& options, const std::vector<ModelTensor>& tensors, Communicator& communicator,
              FreeBytes free_bytes = free_bytes_for);

  bool wanted() const { return !options_.output.empty(); }
  // Before the first step, on rank 0: throws Error when a place cannot be used, or has no room for the model.
  void check_places() const;
  // After a step, on rank 0: says when the room for the model has gone, and when it has come back. Looks every minute,
  // and before the last step.
  void watch_room(std::int64_t step, RunReport& report);
  // A collective. Throws UnfitWeight on all ranks for weights that are not numbers, or do not fit the dtype; and Error
  // when there is no place that takes the model.
  void save(ModelEngine& engine, std::int64_t step, RunReport& report);

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    const char* option;
    std::filesystem::path path;
  };

  bool writes() const { return communicator_.rank() == 0; }
  // Nothing when the model is there; else, on all ranks, why it is not.
  std::optional<std::string> save_in(const Place& place, ModelEngine& engine, const WeightCheck& check,
                                     std::int64_t step, RunReport& report);
  std::optional<std::string> try_to_write(const Place& place, ModelEngine& engine, const WeightCheck& check);
  std::optional<std::string> join_reads(ModelEngine& engine, const WeightCheck& check);
  // Whether rank 0 goes on.
  enum class Writing { goes_on, has_failed };
  Writing agree(Writing own = Writing::goes_on);
  std::string lacking_room(const Place& place) const;

  const TrainOptions& options_;
  const std::vector<ModelTensor>& tensors_;
  Communicator& communicator_;
  const FreeBytes free_bytes_;
  ModelDirectoryOptions directory_;
  std::vector<Place> places_;  // in the order in which they are tried
  std::int64_t bytes_ = 0;     // of the model; on rank 0
  Clock::time_point looked_at_ = Clock::now();
  bool had_room_ = true;
};

}  // namespace zeepo
