// A convolutional network for images of digits.
#pragma once

#include "zeepo/zeepo.h"

namespace mnist {

using namespace zeepo;

// x: (N, 1, 28, 28)   y: (N, 10), a logit a digit
class Cnn : public Module {
 public:
  Tensor forward(const Tensor& x) override {
    Tensor y = max_pool2d(relu(conv1_(x)), 2);             // (N, 8, 14, 14)
    y = max_pool2d(relu(conv2_(y)), 2);                    // (N, 16, 7, 7)
    return head_(reshape(y, {y.shape()[0], 16 * 7 * 7}));  // (N, 10)
  }

 private:
  Module& conv1_ = child<Conv2d>("conv1", 1, 8, 5, ConvOptions{.padding = 2});
  Module& conv2_ = child<Conv2d>("conv2", 8, 16, 5, ConvOptions{.padding = 2});
  Module& head_ = child<Linear>("head", 16 * 7 * 7, 10);
};

}  // namespace mnist
