#include "zeepo/zero/loss_scale.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {

void LossScale::update(bool overflowed) {
  if (!in_use_) return;
  in_a_row_ = overflowed ? in_a_row_ + 1 : 0;
  if (options_.fixed) {
    if (in_a_row_ >= kMostInARow)
      throw Error(
          "fp16: gradients have overflowed in {} steps in a row with a fixed loss scale of {}; lower it, or --lr",
          in_a_row_, scale_);
    return;
  }
  if (!overflowed) {
    if (++good_steps_ < options_.patience) return;
    scale_ = std::min(scale_ * 2, 0x1p31f);
    good_steps_ = 0;
    overflows_left_ = options_.hysteresis;
    return;
  }
  good_steps_ = 0;
  if (overflows_left_ > 1) {
    --overflows_left_;
    return;
  }
  if (scale_ <= options_.least)
    throw Error("fp16: gradients overflow even with a loss scale of {}; lower --lr, or use --dtype bf16", scale_);
  scale_ = std::max(options_.least, scale_ / 2);
}

}  // namespace zeepo
