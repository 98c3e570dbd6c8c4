// Loss scaling for fp16: gradients are computed for loss × scale so that small ones do not vanish. Dynamic unless
// fixed.
#pragma once

namespace zeepo {

class LossScale {
 public:
  struct Options {
    float initial = 65536;
    float least = 1;
    int patience = 1000;  // steps without overflow before the scale doubles
    int hysteresis = 1;   // overflows until the scale is halved, counted anew when it has doubled
    bool fixed = false;   // the scale stays at `initial`
  };
  // With a fixed scale this many steps in a row that overflow end the run.
  static constexpr int kMostInARow = 20;

  // What later steps depend on.
  struct State {
    float scale = 1;
    int good_steps = 0, overflows_left = 1, in_a_row = 0;
  };

  LossScale() : scale_(1), in_use_(false) {}  // always 1
  explicit LossScale(const Options& options)
      : options_(options), scale_(options.initial), in_use_(true), overflows_left_(options.hysteresis) {}

  State state() const { return {scale_, good_steps_, overflows_left_, in_a_row_}; }
  void restore(const State& state) {
    scale_ = state.scale;
    good_steps_ = state.good_steps;
    overflows_left_ = state.overflows_left;
    in_a_row_ = state.in_a_row;
  }
  float value() const { return scale_; }
  // A step that overflows is skipped; without a scale it is a fault.
  bool in_use() const { return in_use_; }
  // After each step: halves the scale when it overflowed, doubles it after `patience` good ones. Throws Error when the
  // scale is at its least, or fixed, and gradients overflow all the same.
  void update(bool overflowed);

 private:
  Options options_;
  float scale_;
  bool in_use_;
  int good_steps_ = 0, overflows_left_ = 1, in_a_row_ = 0;
};

}  // namespace zeepo
