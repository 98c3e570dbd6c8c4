#include "zeepo/nn/module.h"

#include <algorithm>
#include <optional>

#include "zeepo/autograd/checkpoint.h"
#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"

namespace zeepo {

Tensor Module::forward(const Tensor&) { throw Error("module: forward(x) is not what this module does"); }

Tensor Module::operator()(const Tensor& x) {
  return visit(x, [this](const Tensor& input) { return forward(input); });
}

// Below the lowest trained parameter nothing is recorded: the module has no backward visit.
Tensor Module::visit(const Tensor& x, const std::function<Tensor(const Tensor&)>& f) {
  const auto run = [&] { return checkpointed_ ? checkpoint(x, f) : f(x); };
  if (!hooks_) return run();
  std::optional<TapeScope> unrecorded;
  if (Tape::current() && !wanted_gradient(x) && !trains()) unrecorded.emplace(nullptr);
  hooks_->before_forward(*this);
  Tape* tape = Tape::current();
  if (tape) tape->mark([this, hooks = hooks_] { hooks->after_backward(*this); });
  Tensor y = run();
  if (tape) tape->mark([this, hooks = hooks_] { hooks->before_backward(*this); });
  hooks_->after_forward(*this);
  return y;
}

bool Module::trains() const {
  const auto trainable = [](const auto& parameter) { return parameter->leaf().trainable(); };
  return std::ranges::any_of(parameters_, trainable) || std::ranges::any_of(borrowed_, trainable) ||
         std::ranges::any_of(children_, [](const Child& child) { return child.second->trains(); });
}

Parameter& Module::parameter(std::string name, Shape shape, Init init) {
  parameters_.push_back(std::make_unique<Parameter>(std::move(name), shape, init));
  return *parameters_.back();
}

std::unique_ptr<Parameter> Module::give_up(Parameter& parameter) {
  const auto found = std::ranges::find(parameters_, &parameter, [](const auto& own) { return own.get(); });
  if (found == parameters_.end()) throw Error("module: parameter {} is not its own", parameter.name());
  auto result = std::move(*found);
  parameters_.erase(found);
  return result;
}

Parameter& Module::borrow(Parameter& parameter) {
  borrowed_.push_back(&parameter);
  return parameter;
}

std::vector<NamedParameter> named_parameters(const Module& module, const std::string& prefix) {
  std::vector<NamedParameter> result;
  for (const auto& parameter : module.own_parameters()) result.push_back({prefix, parameter.get()});
  for (const auto& [name, inner] : module.children()) {
    auto more = named_parameters(*inner, name.empty() ? prefix : prefix + name + ".");
    result.insert(result.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return result;
}

void for_each_module(Module& module, const std::function<void(Module&)>& f) {
  f(module);
  for (const auto& [name, inner] : module.children()) for_each_module(*inner, f);
}

}  // namespace zeepo
