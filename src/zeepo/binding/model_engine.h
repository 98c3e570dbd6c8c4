// An engine for a model made of Modules: the units come from the model, visits from its modules, gradients from its
// tape.
//
// The engine attaches itself to the model and detaches when destroyed; it must outlive every tensor that the model
// computes while it is attached. Another front end binds to zero/engine.h in the same way.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "zeepo/binding/activation_store.h"
#include "zeepo/binding/draft_weights.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/zero/engine.h"

namespace zeepo {

class ModelEngine final : public Engine, private VisitHooks, private Leaf::Store {
 public:
  ModelEngine(Module& model, Communicator& communicator, const EngineOptions& options);
  ~ModelEngine() override;

  // All weights, sorted by name, and their exact fp32 values.
  std::vector<WeightSlice> slices() { return settled_io().slices(); }
  void read(const std::string& name, std::int64_t begin, std::span<float> out) { settled_io().read(name, begin, out); }
  // A hash of all exact weights in name order; `look` sees all of them on its way.
  std::string weights_hash(const WeightLook& look = {}) { return settled_io().hash(look); }

  // Forward and backward pass of one micro-batch; its gradients are reduced into the shards. `loss` gives one element.
  // When it throws, the step is abandoned: see Engine::abandon_pass.
  void micro_step(const std::function<Tensor()>& loss);
  // Runs f as one pass without a backward pass.
  void infer(const std::function<void()>& f, Then then = Then::nothing);

  // From now on there is a coarse copy of what passes fetch, to be loaded after the weights.
  void keep_draft(CodedType type, Place place);
  bool drafts() const { return draft_ != nullptr; }
  void load_draft(const WeightSource& source, const CodedSource& codes = {}) { draft_->load(source, codes); }
  // infer() with the copy; the weights themselves where passes fetch nothing.
  void infer_draft(const std::function<void()>& f, Then then = Then::nothing);

 private:
  ModelEngine(ModelUnits units, Communicator& communicator, const EngineOptions& options);

  void before_forward(Module& module) override;
  void after_forward(Module& module) override;
  void before_backward(Module& module) override;
  void after_backward(Module& module) override;
  Gradient::Target gradient_of(const Leaf& leaf) override;
  Tensor value_of(const Leaf& leaf) override;
  CodedValue codes_of(const Leaf& leaf) override;

  void train_pass(const std::function<Tensor()>& loss, float loss_gradient);

  std::vector<Module*> modules_;  // of each visit
  std::map<const Module*, std::size_t> visits_;
  std::map<const Leaf*, ParameterId> leaves_;
  std::vector<Parameter*> parameters_;
  std::unique_ptr<ActivationStore> activations_;  // where activations are offloaded
  std::unique_ptr<DraftWeights> draft_;           // null: none
  bool drafting_ = false;                         // in a pass of infer_draft()
};

}  // namespace zeepo
