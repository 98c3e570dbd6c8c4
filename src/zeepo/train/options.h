// What one training run is asked to do. Defaults are those of `zeepo train`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "zeepo/budget/placement_search.h"
#include "zeepo/comm/carrier.h"
#include "zeepo/data/sampler.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/ops/linear.h"
#include "zeepo/optim/schedule.h"
#include "zeepo/zero/engine_options.h"

namespace zeepo {

// Each field is an option of option_table.h.
struct TrainOptions {
  std::filesystem::path model;
  bool from_scratch = false;
  std::filesystem::path data;

  std::int64_t seq_len = 0;  // 0: 1024, or what the model has positions for
  std::int64_t micro_batch = 1, grad_accum = 1;
  std::int64_t steps = 0;  // 0: once through the data
  Order order = Order::shuffled;
  std::uint64_t seed = 0;
  int threads = 0;

  OptimizerOptions optimizer;
  Schedule schedule;
  Decay decay = Decay::all;
  float clip = 1.0f;
  std::vector<std::string> freeze;  // patterns of names: weights that stay as they are
  std::optional<float> dropout;     // instead of the three that config.json gives
  Backend backend = Backend::cpu;
  DType dtype = DType::f32;
  LossScale::Options loss_scale;  // fp16 only
  bool activation_checkpointing = false;
  int stage = 0;
  Reduce reduce = Reduce::each;
  SumOrder sum_order = SumOrder::global;
  std::int64_t blocks_per_unit = 1;         // 0: by the model, see binding/model_units.h
  bool batch_invariant = false;             // see device/devices.h
  Products products = Products::as_stored;  // of the linear layers of the blocks
  std::int64_t linear_tiles = 1;            // that each linear layer of the blocks runs as
  Carrier comm = Carrier::automatic;        // for who makes the communicator
  WireOptions wire = {};                    // what ranks send
  struct Balance {
    bool wanted = false;
    std::vector<double> speeds = {};  // of each rank; empty: as measured at the start
  } balance = {};                     // shares of the batch by speed, see balance.h
  double timeout_seconds = 0;         // 0: none
  std::int64_t prefetch_bytes = EngineOptions{}.prefetch_bytes;
  Placement placement;  // of what is offloaded
  // Of the optimizer's state in host memory, the part that the host steps; the device steps the rest. Empty: all of it
  // on the CPU; on a GPU as much as measured at the start and tuned while it runs.
  std::optional<double> host_step_share;
  OpenChoices choose;  // what of these is chosen within the budgets instead
  struct {
    bool prefetch = false, pieces = false, host_share = false;
  } tune;  // what is adapted while it runs; `zeepo train` asks for what no option fixes
  std::vector<std::filesystem::path> nvme_paths;
  std::int64_t piece_elements = 0;  // of offloaded optimizer states, at most, stepped together; 0: as fits
  IoOptions io;                     // of the files
  std::int64_t device_bytes = 0, host_bytes = 0;                // budgets; 0: what the machine has
  std::int64_t nvme_bytes = 0;                                  // the most that files may take; 0: what the run needs
  double link_bytes_per_second = 0, nvme_bytes_per_second = 0;  // simulated; 0: as they are
  double rank_bytes_per_second = 0;                             // likewise, for who makes the communicator
  bool no_communication = false;                                // a diagnosis: ranks send each other nothing in a step

  std::filesystem::path checkpoint_dir;  // empty: no checkpoints
  std::int64_t checkpoint_every = 0;     // steps; 0: only after the last one
  std::int64_t checkpoint_keep = 2;      // newest ones
  std::int64_t stop_grace_seconds = 0;   // that a signal leaves for the step and its checkpoint; 0: as long as it takes
  std::int64_t checkpoint_bytes = 0;     // of host memory that a snapshot passes through, at most; 0: as there is room
  struct {
    bool wanted = false;
    std::filesystem::path from;  // one checkpoint; empty: the newest whole one of checkpoint_dir
    bool allow_changes = false;  // of options that change the result
  } resume;

  std::filesystem::path eval_data;  // empty: no evaluation
  std::int64_t eval_every = 0;      // steps; 0: only after the last one
  std::int64_t eval_samples = 0;    // the first ones; 0: all
  OnNan on_nan = OnNan::stop;

  struct Elastic {
    bool wanted = false;
    std::string hosts;  // a list or a file; empty: this machine
    int ranks_per_host = 1;
  } elastic = {};  // for who starts the ranks, see elastic/supervisor.h

  std::int64_t print_every = 1;                        // steps between progress lines
  std::string log;                                     // JSON lines: a path, "-" for stdout, empty for none
  std::filesystem::path tensorboard, csv, prometheus;  // the same for other tools; empty: none
  struct {
    bool wanted = false;
    std::string host = "127.0.0.1";
    int port = 0;               // 0: a free one
  } dashboard;                  // the live page
  std::filesystem::path trace;  // what the last steps did when, see trace_file.h; empty: nothing
  std::filesystem::path output;
  std::filesystem::path output_fallback;  // where the model is saved when --output does not take it; empty: nowhere
  double output_retry_seconds = 60;       // to try again at each of them
  std::optional<DType> output_dtype;      // else the run's
};

// Without clipping, or a loss scale or a loss that may skip the step, nothing holds it up until all gradients are
// there.
StepPhase step_phase(const TrainOptions& options);

// What keeps the host from stepping a part of the optimizer's state beside the device in this run.
HostStepObstacle host_step_obstacle(const TrainOptions& options);

// Who steps the optimizer's state that is offloaded; `device` may leave a share of it to the host.
StepSide step_side(const TrainOptions& options);

// Throws UsageError for a value out of range, or options that exclude each other, naming them.
void check(const TrainOptions& options);

}  // namespace zeepo
