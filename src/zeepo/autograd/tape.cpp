#include "zeepo/autograd/tape.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {
thread_local Tape* current_tape = nullptr;
}

std::shared_ptr<Gradient> wanted_gradient(const Tensor& t) {
  const auto* leaf = dynamic_cast<const Leaf*>(t.gradient().get());
  return leaf && !leaf->trainable() ? nullptr : t.gradient();
}

Tensor writable(Tensor t) {
  if (t.unique()) return t;
  Tensor own(t.shape(), t.dtype());
  launch([&](auto& s) { copy(s, t.view(), own.view()); });
  return own;
}

Tape* Tape::current() { return current_tape; }

Tape* Tape::recording(std::initializer_list<const Tensor*> inputs) {
  const bool any =
      std::any_of(inputs.begin(), inputs.end(), [](const Tensor* t) { return wanted_gradient(*t) != nullptr; });
  return any ? current_tape : nullptr;
}

void Tape::record(std::initializer_list<Tensor*> outputs, Backward backward) {
  Entry entry;
  for (Tensor* output : outputs) {
    output->set_gradient(std::make_shared<Gradient>(output->shape(), output->dtype()));
    entry.outputs.push_back(output->gradient());
  }
  entry.backward = std::move(backward);
  entries_.push_back(std::move(entry));
}

void Tape::mark(std::function<void()> callback) {
  entries_.push_back({{}, [callback = std::move(callback)](std::span<Tensor>) { callback(); }});
}

Saved Tape::save(const Tensor& value) {
  // A parameter is not saved: its value is looked up again, for it may have moved.
  if (auto leaf = std::dynamic_pointer_cast<Leaf>(value.gradient())) return [leaf] { return leaf->current(); };
  return SaveHook::current().save(value);
}

void Tape::backward(const Tensor& loss) {
  if (loss.elements() != 1) throw Error("backward: the loss has shape {}, must be one element", loss.shape().str());
  Tensor seed(loss.shape(), loss.dtype());
  launch([&](auto& s) { fill(s, seed.view(), loss_scale_); });
  backward(loss, seed);
}

void Tape::backward(const Tensor& output, const Tensor& gradient) {
  if (!output.gradient()) throw Error("backward: the loss depends on no trainable parameter");
  if (required_root_ && required_root_ != output.gradient())
    throw Error("backward: a fused head and loss was recorded, and the pass must start from that loss");
  output.gradient()->add(gradient);
  run();
}

void Tape::run() {
  const TapeScope none(nullptr);  // the backward pass itself is not recorded
  while (!entries_.empty()) {
    const Entry entry = std::move(entries_.back());
    entries_.pop_back();
    std::vector<Tensor> gradients;
    bool flows = entry.outputs.empty();
    for (const auto& output : entry.outputs) {
      flows |= output->written();
      gradients.push_back(output->take());
    }
    if (flows) entry.backward(gradients);
  }
}

TapeScope::TapeScope(Tape* tape) : outer_(std::exchange(current_tape, tape)) {}
TapeScope::~TapeScope() { current_tape = outer_; }

}  // namespace zeepo
