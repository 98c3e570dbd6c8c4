// A piece of a model: parameters, and modules inside it. It knows nothing of where they live or how they are sharded.
//
// A module that is called as module(x), or through visit(), tells the attached hooks before and after it runs, forward
// and backward. That is how its parameters arrive just in time. Modules are made once and stay where they are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "zeepo/nn/parameter.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

class Module;

class VisitHooks {
 public:
  virtual ~VisitHooks() = default;
  virtual void before_forward(Module& module) = 0;
  virtual void after_forward(Module& module) = 0;
  virtual void before_backward(Module& module) = 0;
  virtual void after_backward(Module& module) = 0;
};

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  // What a module of one input does. Override it, and call the module as module(x).
  virtual Tensor forward(const Tensor& x);
  Tensor operator()(const Tensor& x);
  // Runs f(x) as this module's work. f is kept until the backward pass when the module is checkpointed, so it must hold
  // what it needs by value.
  Tensor visit(const Tensor& x, const std::function<Tensor(const Tensor&)>& f);

  using Child = std::pair<std::string, std::unique_ptr<Module>>;
  const std::vector<Child>& children() const { return children_; }
  const std::vector<std::unique_ptr<Parameter>>& own_parameters() const { return parameters_; }
  // Parameters of other modules that this one works with: a tied head.
  const std::vector<Parameter*>& borrowed_parameters() const { return borrowed_; }
  // Whether a parameter of its own, of a module inside it, or borrowed is trainable.
  bool trains() const;
  // A unit's parameters travel together. Where a model marks none, each child of the outermost module is one.
  bool is_unit() const { return unit_; }
  // A tile is visited within the unit that holds it, and its parameters come and go by themselves.
  bool is_tile() const { return tile_; }

  void attach(VisitHooks* hooks) { hooks_ = hooks; }
  void set_checkpointed(bool checkpointed) { checkpointed_ = checkpointed; }
  // Whether the module is one of many alike whose activations are worth recomputing.
  bool is_checkpointable() const { return checkpointable_; }

 protected:
  Parameter& parameter(std::string name, Shape shape, Init init);
  // Makes a module inside this one. An empty name adds nothing to the names of its parameters.
  template <class M, class... Args>
  M& child(std::string name, Args&&... args) {
    auto module = std::make_unique<M>(std::forward<Args>(args)...);
    M& made = *module;
    children_.emplace_back(std::move(name), std::move(module));
    return made;
  }
  // Takes a parameter of its own out of the module.
  std::unique_ptr<Parameter> give_up(Parameter& parameter);
  Parameter& borrow(Parameter& parameter);
  void mark_tile() { tile_ = true; }
  void mark_unit() { unit_ = true; }
  void mark_checkpointable() { checkpointable_ = true; }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<Parameter*> borrowed_;
  std::vector<Child> children_;
  VisitHooks* hooks_ = nullptr;
  bool unit_ = false, tile_ = false, checkpointable_ = false, checkpointed_ = false;
};

struct NamedParameter {
  std::string prefix;  // what comes before the parameter's and its slices' names: "model.layers.0."
  Parameter* parameter;
};
// All parameters of the module and those inside it, each once, in the order they were made.
std::vector<NamedParameter> named_parameters(const Module& module, const std::string& prefix = "");
// The module itself and all inside it, outermost first.
void for_each_module(Module& module, const std::function<void(Module&)>& f);

}  // namespace zeepo
