// An engine for a module of PyTorch's: parameters at fixed addresses, passes as hooks tell of them, gradients as
// autograd hands them over.
//
// No libtorch here: the caller (python/) sees to the hooks, and gives addresses of contiguous memory. Hooks do not say
// when a pass begins or ends, nor how many backward passes a step has: TorchEngine finds out. A training pass is open
// from the first use that records gradients until the step; a pass without gradients until the model's call is over.
// Calls come from whichever thread autograd runs on, one at a time, and every rank makes the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "zeepo/runtime/runtime.h"
#include "zeepo/tensor/device.h"
#include "zeepo/torch/fixed_memory.h"
#include "zeepo/torch/saved_tensors.h"

namespace zeepo {

enum class Recorded : bool { no, yes };  // whether autograd records what is computed

class TorchEngine final : public Attachment {
 public:
  // Every unit gets a visit of its own; those of the plan are not looked at.
  TorchEngine(Runtime& runtime, UnitPlan units, const EngineOptions& options, AbsentMemory absent);
  ~TorchEngine() override { leave(); }

  Engine& get();  // throws Error once the runtime is closed
  // Where the parameter is for as long as the engine is there, fetched or not.
  std::byte* address(const ParameterId& id) const { return addresses_[id.unit][id.index]; }
  bool always_there(std::size_t unit) { return get().plan().units[unit].params_whole; }
  std::size_t slots() const { return memory_->slots(); }

  // On a GPU: the stream that the caller computes on, by its cudaStream_t. What follows is done in that stream's order.
  void follow(std::uintptr_t stream);

  // A call of the whole model, and its end.
  void begin_call(Recorded recorded);
  void end_call();
  // These units are used next: their parameters are here until the next call of this function.
  void use(const std::vector<std::size_t>& units, Recorded recorded, Visit::Direction direction);

  // A gradient of this backward pass, in the training dtype; its memory is written over, and is the caller's again in
  // the order of the stream. Where the gradients of a unit are not kept whole they are sent to the ranks as soon as all
  // of them are there, unless the pass is one of several.
  void add_gradient(const ParameterId& id, std::byte* data);
  enum class Passes : bool { one, several };
  void set_passes(Passes passes);

  // Where autograd's saved tensors go; null: they stay with PyTorch, or the engine has ended.
  SavedTensors* saved_tensors() { return saved_.get(); }

  // Whether there are gradients to step with. Ends the passes before the step.
  bool finish_passes();
  // Of several ranks, whether it is so on any. Ends the passes before the step; then nothing is on its way between
  // ranks.
  bool is_on_any_rank(bool here);
  // All three throw Error, and keep what there is, before all micro-steps of the step are there. The caller has
  // multiplied the loss of these by `scale` besides loss_scale(): the norm of the gradients without both, not finite
  // where one of them is not.
  float unscale(float scale);
  float clip_to(float norm);
  // Whoever looks at a weight afterwards, in the order of the stream, sees the new one.
  StepResult step(const std::vector<StepRule>& rules);
  // Drops gradients that no step has taken.
  void drop_gradients();
  // What the caller is to multiply the loss of the next step by: 1 but in fp16, where a step that overflows is skipped
  // and lowers it.
  float loss_scale() { return get().progress().loss_scale.scale; }

 private:
  Engine& engine() override { return *engine_; }
  void end() noexcept override;
  // For the thread of the call.
  DeviceScope here();
  void find_addresses();
  void open_training();
  void await_all_gradients();
  void begin_backward();
  void end_micro_step();
  void check_micro_steps(const char* call);

  enum class Pass { none, inference, training };

  Session& session_;
  Pass pass_ = Pass::none;
  Passes passes_ = Passes::one;
  bool in_backward_ = false;           // of the training pass
  std::int64_t micro_steps_ = 0;       // ended since the last step
  std::vector<std::int64_t> missing_;  // gradients of each unit in this micro-step
  std::vector<bool> sent_;             // units, in this micro-step
  std::vector<std::vector<bool>> has_gradient_;
  std::vector<std::vector<std::byte*>> addresses_;  // of each unit's parameters
  float factor_ = 1;                                // of each gradient: the ranks' are averaged
  float given_scale_ = 1;                           // by unscale(), of the gradients of this step
  Tensor no_loss_;
  std::unique_ptr<FixedMemory> memory_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SavedTensors> saved_;
};

}  // namespace zeepo
