#include "zeepo/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zeepo {

double learning_rate(const Schedule& schedule, std::int64_t step, std::int64_t steps) {
  if (step <= schedule.warmup) return schedule.lr * static_cast<double>(step) / static_cast<double>(schedule.warmup);
  if (schedule.type == ScheduleType::constant) return schedule.lr;
  const double done = static_cast<double>(step - schedule.warmup);
  const double progress = std::min(1.0, done / static_cast<double>(std::max<std::int64_t>(1, steps - schedule.warmup)));
  const double left =
      schedule.type == ScheduleType::linear ? 1 - progress : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return schedule.lr_end + (schedule.lr - schedule.lr_end) * left;
}

}  // namespace zeepo
