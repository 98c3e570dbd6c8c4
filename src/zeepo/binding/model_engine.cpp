#include "zeepo/binding/model_engine.h"

#include <optional>
#include <utility>

#include "zeepo/autograd/tape.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

ModelEngine::ModelEngine(Module& model, Communicator& communicator, const EngineOptions& options)
    : ModelEngine(plan_units(model, options.blocks_per_unit), communicator, options) {}

ModelEngine::ModelEngine(ModelUnits units, Communicator& communicator, const EngineOptions& options)
    : Engine(static_cast<const UnitPlan&>(units), communicator, options), modules_(std::move(units.modules)) {
  for (std::size_t u = 0; u < units.parameters.size(); ++u)
    for (std::size_t i = 0; i < units.parameters[u].size(); ++i) {
      Parameter* const parameter = units.parameters[u][i];
      parameters_.push_back(parameter);
      leaves_[&parameter->leaf()] = {u, i};
      parameter->leaf().set_dtype(options.dtype);
      parameter->leaf().set_store(this);
    }
  const bool checkpointing = options.activation_checkpointing || options.placement.activations != Place::device;
  for (std::size_t i = 0; i < modules_.size(); ++i) {
    visits_[modules_[i]] = i;
    modules_[i]->attach(this);
    modules_[i]->set_checkpointed(checkpointing && modules_[i]->is_checkpointable());
  }
  if (options.use == Use::train && options.placement.activations != Place::device)
    activations_ = std::make_unique<ActivationStore>(*Device::current().lower, options.placement.activations);
}

ModelEngine::~ModelEngine() {
  for (Module* module : modules_) {
    module->attach(nullptr);
    module->set_checkpointed(false);
  }
  for (Parameter* parameter : parameters_) parameter->leaf().set_store(nullptr);
}

void ModelEngine::before_forward(Module& module) {
  const std::size_t visit = visits_.at(&module);
  if (drafting_) return draft_->before({visit, Visit::Direction::forward});
  before({visit, Visit::Direction::forward}, Tape::current() ? Recorded::yes : Recorded::no);
  if (activations_) activations_->set_owner(units().visits[visit].name);
}

void ModelEngine::after_forward(Module& module) {
  const Visit visit{visits_.at(&module), Visit::Direction::forward};
  drafting_ ? draft_->after(visit) : after(visit);
}
void ModelEngine::before_backward(Module& module) { before({visits_.at(&module), Visit::Direction::backward}); }
void ModelEngine::after_backward(Module& module) { after({visits_.at(&module), Visit::Direction::backward}); }

Gradient::Target ModelEngine::gradient_of(const Leaf& leaf) {
  auto [tensor, write] = gradient(leaves_.at(&leaf));
  return {std::move(tensor), write};
}

Tensor ModelEngine::value_of(const Leaf& leaf) {
  const ParameterId& id = leaves_.at(&leaf);
  if (drafting_)
    if (Tensor coarse = draft_->parameter(id); coarse.defined()) return coarse;
  return parameter(id);
}

CodedValue ModelEngine::codes_of(const Leaf& leaf) {
  const ParameterId& id = leaves_.at(&leaf);
  WeightStream::Stored stored = drafting_ ? draft_->stored(id) : WeightStream::Stored{};
  if (!stored.rows.defined() && !(drafting_ && draft_->parameter_is_copied(id))) stored = stored_parameter(*this, id);
  return {std::move(stored.rows), stored.type};
}

void ModelEngine::micro_step(const std::function<Tensor()>& loss) {
  const float loss_gradient = begin_micro_step();
  try {
    train_pass(loss, loss_gradient);
  } catch (...) {
    abandon_pass();
    throw;
  }
}

// The tape, and what it has saved, is gone when a failed pass is abandoned.
void ModelEngine::train_pass(const std::function<Tensor()>& loss, float loss_gradient) {
  Tape tape(loss_gradient);
  Tensor value;
  {
    const TapeScope scope(&tape);
    std::optional<SaveHookScope> saving;
    if (activations_) saving.emplace(*activations_);
    value = loss();
  }
  begin_backward(value);
  tape.backward(value);
  end_micro_step();
}

void ModelEngine::infer(const std::function<void()>& f, Then then) {
  const TapeScope none(nullptr);
  begin_inference();
  try {
    f();
  } catch (...) {
    abandon_pass();
    throw;
  }
  end_inference(then);
}

void ModelEngine::keep_draft(CodedType type, Place place) {
  draft_ = std::make_unique<DraftWeights>(*this, type, place);
}

void ModelEngine::infer_draft(const std::function<void()>& f, Then then) {
  if (!draft_->any()) return infer(f, Then::nothing);
  const TapeScope none(nullptr);
  drafting_ = true;
  draft_->begin();
  try {
    f();
  } catch (...) {
    draft_->abandon();
    drafting_ = false;
    throw;
  }
  drafting_ = false;
  draft_->end(then);
}

}  // namespace zeepo
