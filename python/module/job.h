// What Python holds of zeepo: the ranks joined and, once a module is attached, its engine. Numbers, texts and addresses
// only: tensors are PyTorch's affair.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "zeepo/torch/torch_checkpoint.h"
#include "zeepo/torch/torch_engine.h"
#include "zeepo/torch/torch_options.h"

namespace zeepo {

// The ranks of this process, joined at the first call and until finish_ranks(): one module after another may use them.
Communicator& process_ranks();
// The clean end on every rank, where they were joined: when the process ends.
void finish_ranks();

class Job {
 public:
  using Address = std::uintptr_t;
  // Name, shape, whether it is trained, the optimizer's group.
  using GivenParameter = std::tuple<std::string, std::vector<std::int64_t>, bool, std::size_t>;
  using GivenUnit = std::pair<std::string, std::vector<GivenParameter>>;
  // Rate, beta1, beta2, eps, momentum, decay.
  using GivenRule = std::tuple<double, double, double, double, double, double>;
  // Fills `count` floats at an address with those of a weight from element `begin` on.
  using Fill = std::function<void(const std::string& name, std::int64_t begin, Address to, std::int64_t count)>;

  Job(const std::map<std::string, std::string>& texts, const std::string& config_file);

  int rank() { return process_ranks().rank(); }
  int size() { return process_ranks().size(); }
  const std::vector<std::string>& notes() const { return given_.notes; }
  std::string option(const std::string& name) const;

  // optimizer: "adamw", "adam", "sgd", or empty for inference. gpu: where the module is; -1 for the CPU. protect: what
  // is not fetched cannot be read.
  void attach(const std::vector<GivenUnit>& units, const std::string& dtype, const std::string& optimizer,
              double momentum, int gpu, bool protect);
  void load(const Fill& fill);
  TorchEngine& engine();
  Address address(std::size_t unit, std::size_t index);
  StepResult step(const std::vector<GivenRule>& rules);
  void read(const std::string& name, std::int64_t begin, Address to, std::int64_t count);

  SavedTensors& saved();  // throws Error where they stay with PyTorch
  // Also when the engine has ended.
  void drop_saved(std::int64_t number) noexcept;

  // Rank 0's bytes at the address become every rank's.
  void broadcast(Address address, std::int64_t bytes);
  // Of flags that are "1" or "0", as many on every rank: those that are "1" on any. Nothing may be on its way between
  // the ranks.
  std::string any_of(const std::string& flags);
  // Whether each rank of this machine may take so many bytes of its memory.
  bool has_host_room(std::int64_t bytes);
  std::string report();
  // buffers: the bytes of a file that a checkpoint keeps beside the states.
  std::string save(const std::string& directory, const std::string& buffers);
  FoundCheckpoint find_saved(const std::string& directory);
  void load_saved(const std::string& path);
  // Of each buffer its name, the format's name of its dtype, its shape and its bytes.
  using GivenBuffer = std::tuple<std::string, std::string, std::vector<std::int64_t>, std::string>;
  void write_weights(const std::string& file, const std::string& dtype, const std::vector<GivenBuffer>& buffers);

  void close();
  void abort(const std::string& message);

 private:
  EngineOptions engine_options(const std::string& dtype, const std::string& optimizer, double momentum) const;
  // What lives where, within the budgets, before memory is taken for it.
  EngineOptions plan_run(const UnitPlan& units, const EngineOptions& options, int gpu);

  GivenOptions given_;
  bool dtype_given_ = false;
  std::string scale_option_;  // one that was given of the loss scale
  OptimizerOptions optimizer_;
  WeightExtents shapes_;  // as PyTorch has them
  std::unique_ptr<Runtime> runtime_;
  std::unique_ptr<TorchEngine> engine_;
};

}  // namespace zeepo
