#include "zeepo/zero/loss_scale.h"

#include <algorithm>

#include "zeepo/base/error.h"

namespace zeepo {

void LossScale::update(bool overflowed) {
  if (!dynamic_) return;
  if (!overflowed) {
    if (++good_steps_ < options_.patience) return;
    scale_ = std::min(scale_ * 2, 0x1p31f);
    good_steps_ = 0;
    return;
  }
  if (scale_ <= options_.least)
    throw Error("fp16: gradients overflow even with a loss scale of {}; lower --lr, or use --dtype bf16", scale_);
  scale_ = std::max(options_.least, scale_ / 2);
  good_steps_ = 0;
}

}  // namespace zeepo
