// One small model for each thing that models do with parameters.
#pragma once

#include "tests/zero/sharded_run.h"
#include "zeepo/autograd/tape.h"
#include "zeepo/base/error.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/add.h"
#include "zeepo/ops/loss.h"

namespace zeepo {

// Sizes that no world divides.
class Plain : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(second_(gelu(middle_(gelu(first_(x))))), targets);
  }

 private:
  Module &first_ = child<Linear>("first", kIn, kHidden), &middle_ = child<Linear>("middle", kHidden, kHidden),
         &second_ = child<Linear>("second", kHidden, kOut);
};

// Fewer elements than ranks.
class Tiny : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(linear(gelu(squeeze_(x)), out_), targets);
  }

 private:
  Module& squeeze_ = child<Linear>("squeeze", kIn, 1);  // 5 and 1 elements
  Parameter& out_ = parameter("out", {kOut, 1}, Init::ones());
};

// y = x W or x Wᵀ with another module's weight.
class Borrower : public Module {
 public:
  Borrower(Parameter& weight, WeightLayout layout) : weight_(borrow(weight)), layout_(layout) {}
  Tensor forward(const Tensor& x) override { return linear(x, weight_, {}, layout_); }

 private:
  Parameter& weight_;
  WeightLayout layout_;
};

inline Parameter& weight_of(Module& layer) { return *layer.own_parameters()[0]; }

// The first layer's weight is the last one's too, as in a language model with a tied head.
class Tied : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(out_(head_(gelu(middle_(gelu(first_(x)))))), targets);
  }

 private:
  Module &first_ = child<Linear>("first", kIn, kHidden), &middle_ = child<Linear>("middle", kHidden, kHidden),
         &head_ = child<Borrower>("head", weight_of(first_), WeightLayout::in_out),
         &out_ = child<Linear>("out", kIn, kOut);
};

// Two modules use a third one's parameter; the owner itself is never called.
class UsedByTwo : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(out_(b_(gelu(a_(gelu(x))))), targets);
  }

 private:
  Module &owner_ = child<Linear>("owner", kIn, kIn),
         &a_ = child<Borrower>("a", weight_of(owner_), WeightLayout::out_in),
         &b_ = child<Borrower>("b", weight_of(owner_), WeightLayout::in_out), &out_ = child<Linear>("out", kIn, kOut);
};

// One module three times in a pass, another one in between.
class CalledAgain : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(out_(again_(between_(gelu(again_(gelu(again_(x))))))), targets);
  }

 private:
  Module &again_ = child<Linear>("again", kIn, kIn), &between_ = child<Linear>("between", kIn, kIn),
         &out_ = child<Linear>("out", kIn, kOut);
};

// A frozen module, and a frozen weight beside a trained bias.
class Frozen : public Module {
 public:
  Frozen() {
    for (const auto& parameter : first_.own_parameters()) parameter->leaf().set_trainable(false);
    weight_of(middle_).leaf().set_trainable(false);
  }
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(second_(gelu(middle_(gelu(first_(x))))), targets);
  }

 private:
  Module &first_ = child<Linear>("first", kIn, kHidden), &middle_ = child<Linear>("middle", kHidden, kHidden),
         &second_ = child<Linear>("second", kHidden, kOut);
};

// Modules that no pass calls, first and in the middle; and one whose output leads nowhere.
class Unused : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    const Tensor h = gelu(first_(x));
    (void)nowhere_(h);
    return cross_entropy(second_(h), targets);
  }
  Module& never = child<Linear>("never", kIn, kHidden);

 private:
  Module& first_ = child<Linear>("first", kIn, kHidden);
  Module& nowhere_ = child<Linear>("nowhere", kHidden, kHidden);

 public:
  Module& either = child<Linear>("either", kHidden, kHidden);

 private:
  Module& second_ = child<Linear>("second", kHidden, kOut);
};

// Takes one way or the other, and now and then both.
class Branching : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t pass) {
    Tensor h = gelu(first_(x));
    if (pass % 2 == 0 || pass == 3) h = gelu(left_(h));
    if (pass % 2 == 1) h = gelu(right_(h));
    return cross_entropy(second_(h), targets);
  }

 private:
  Module &first_ = child<Linear>("first", kIn, kHidden), &left_ = child<Linear>("left", kHidden, kHidden),
         &right_ = child<Linear>("right", kHidden, kHidden), &second_ = child<Linear>("second", kHidden, kOut);
};

// Parameters of the outermost module itself, used before and after its children; one of them borrowed by a child.
class Outside : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    const Tensor h = borrower_(gelu(inner_(gelu(linear(x, mix_)))));
    return cross_entropy(linear(add(h, linear(x, mix_)), out_), targets);
  }

 private:
  Parameter &mix_ = parameter("mix", {kIn, kIn}, Init::ones()), &out_ = parameter("out", {kOut, kIn}, Init::ones());
  Module &inner_ = child<Linear>("inner", kIn, kIn),
         &borrower_ = child<Borrower>("borrower", mix_, WeightLayout::in_out);
};

class Residual : public Module {
 public:
  Residual() {
    mark_unit();
    mark_checkpointable();
  }
  Tensor forward(const Tensor& x) override { return add(x, down_(gelu(up_(norm_(x))))); }

 private:
  Module &norm_ = child<LayerNorm>("norm", kIn), &up_ = child<Linear>("up", kIn, kHidden),
         &down_ = child<Linear>("down", kHidden, kIn);
};

// Five blocks, and a head outside of all units.
class Deep : public Module {
 public:
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    Tensor h = x;
    for (Module* block : blocks_) h = (*block)(h);
    return cross_entropy(head_(h), targets);
  }

 private:
  std::vector<Module*> blocks_ = [this] {
    std::vector<Module*> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(&child<Residual>("blocks." + std::to_string(i)));
    return blocks;
  }();
  Module& head_ = child<Linear>("head", kIn, kOut);
};

// Units of several pieces between small ones, one of them left out of every other pass.
class Wide : public Module {
 public:
  static constexpr std::int64_t kWide = 450;

  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t pass) {
    Tensor h = second_(first_(x));
    if (breaks) {
      Tensor broken = h;
      Tape::current()->record({&broken}, [](std::span<Tensor>) { throw Error("broken backward"); });
      h = broken;
    }
    if (pass % 2 == 0) h = sometimes_(h);
    return cross_entropy(last_(h), targets);
  }
  bool breaks = false;  // on the way back, before the first two have gradients

 private:
  GeluBlock &first_ = child<GeluBlock>("first", kIn, kWide), &second_ = child<GeluBlock>("second", kWide, kWide),
            &sometimes_ = child<GeluBlock>("sometimes", kWide, kWide), &last_ = child<GeluBlock>("last", kWide, kOut);
};

// Calls f<Model>(what it shows) for parameters that are used more than once, frozen, unused, or outside of all units.
template <class F>
void for_every_use_of_parameters(const F& f) {
  f.template operator()<Tied>("tied");
  f.template operator()<UsedByTwo>("used by two");
  f.template operator()<CalledAgain>("called again");
  f.template operator()<Frozen>("frozen");
  f.template operator()<Unused>("unused");
  f.template operator()<Branching>("branching");
  f.template operator()<Outside>("outside");
}

}  // namespace zeepo
