// The record of a forward pass, and its way back.
//
// While a TapeScope is in force on a thread, ops record on its tape how the gradients of their outputs become gradients
// of their inputs; backward() runs that in reverse, freeing each entry, and what it saved, as it goes. Without a tape
// nothing is recorded or saved.
#pragma once

#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "zeepo/autograd/gradient.h"
#include "zeepo/autograd/saved.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

class Tape {
 public:
  // `loss_scale` is the gradient that backward() starts from. A loss that computes gradients in its forward pass (the
  // fused head) needs it early.
  explicit Tape(float loss_scale = 1) : loss_scale_(loss_scale) {}

  // The tape in force on this thread, or null.
  static Tape* current();
  // The tape, if one is in force and any of the inputs takes part in the backward pass; else null.
  static Tape* recording(std::initializer_list<const Tensor*> inputs);

  float loss_scale() const { return loss_scale_; }

  // Gives the outputs gradients of their own and records how to send them on. `backward` gets them once they are
  // complete, one an output, undefined where nothing flowed back; it may keep them or write over them. It does not run
  // when nothing flowed back to any output.
  using Backward = std::function<void(std::span<Tensor> gradients)>;
  void record(std::initializer_list<Tensor*> outputs, Backward backward);
  // Runs in its place of the backward pass, whatever flows.
  void mark(std::function<void()> callback);

  Saved save(const Tensor& value);

  // For a loss that has taken loss_scale into account in its forward pass: backward() must start from it.
  void require_root(const Tensor& loss) { required_root_ = loss.gradient(); }

  // d(loss_scale · loss): fills the gradients of everything recorded. The tape is empty afterwards.
  void backward(const Tensor& loss);
  // The same from the middle: `gradient` is that of `output`.
  void backward(const Tensor& output, const Tensor& gradient);

 private:
  struct Entry {
    std::vector<std::shared_ptr<Gradient>> outputs;
    Backward backward;
  };
  void run();

  float loss_scale_;
  std::shared_ptr<Gradient> required_root_;
  std::vector<Entry> entries_;
};

// Puts a tape in force, or none: within TapeScope(nullptr) ops record nothing.
class TapeScope {
 public:
  explicit TapeScope(Tape* tape);
  ~TapeScope();
  TapeScope(const TapeScope&) = delete;
  TapeScope& operator=(const TapeScope&) = delete;

 private:
  Tape* outer_;
};

// The gradient of `t` if it is wanted: null for data, for values of no trainable parameter, and for frozen parameters.
std::shared_ptr<Gradient> wanted_gradient(const Tensor& t);
// `t` itself when nobody shares its memory, else a copy: for a backward pass that works in place.
Tensor writable(Tensor t);

}  // namespace zeepo
