// One training run on a language model, from a Hugging Face directory to a Hugging Face directory.
//
// What is planned (planning.h), what is run (training_run.h) and what is reported (run_report.h) are three things; this
// one puts them together.
#pragma once

#include <optional>
#include <vector>

#include "zeepo/model/weight_shards.h"
#include "zeepo/train/options.h"
#include "zeepo/train/placement_choice.h"
#include "zeepo/train/run_setup.h"
#include "zeepo/train/training_data.h"
#include "zeepo/zero/session.h"

namespace zeepo {

class Trainer {
 public:
  // Reads the configuration, opens the data and checks that both fit the options, and all ranks each other: what is
  // wrong is said before any work. Every rank makes its own Trainer with its own communicator.
  explicit Trainer(TrainOptions options, Communicator& communicator = alone(),
                   ChoosePlacement choose = placement_by_bytes);
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;
  void run();

 private:
  void check_ranks() const;

  RunSetup setup_;
  const TrainOptions& options_;  // of the setup
  Communicator& communicator_;
  ChoosePlacement choose_;
  std::vector<ModelTensor> tensors_;  // of the model, in the order of its modules
  std::optional<TrainingData> data_, eval_data_;
};

}  // namespace zeepo
