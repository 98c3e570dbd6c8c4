// Dynamic loss scaling for fp16: gradients are computed for loss × scale so that small ones do not vanish.
#pragma once

namespace zeepo {

class LossScale {
 public:
  struct Options {
    float initial = 65536;
    float least = 1;
    int patience = 1000;  // steps without overflow before the scale doubles
  };

  LossScale() : scale_(1), dynamic_(false) {}  // always 1
  explicit LossScale(const Options& options) : options_(options), scale_(options.initial), dynamic_(true) {}

  float value() const { return scale_; }
  bool dynamic() const { return dynamic_; }
  // After each step: halves the scale when it overflowed, doubles it after `patience` good ones. Throws Error when the
  // scale is at its least and gradients overflow all the same.
  void update(bool overflowed);

 private:
  Options options_;
  float scale_;
  bool dynamic_;
  int good_steps_ = 0;
};

}  // namespace zeepo
