#include "zeepo/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace zeepo {
namespace {

double warmup_rate(const Schedule& schedule, std::int64_t step) {
  const auto done = static_cast<double>(step), all = static_cast<double>(schedule.warmup);
  const double rise = schedule.lr - schedule.lr_start;
  if (schedule.warmup_shape == WarmupShape::linear) return schedule.lr_start + rise * done / all;
  return step == schedule.warmup ? schedule.lr : schedule.lr_start + rise * std::log(done) / std::log(all);
}

}  // namespace

double learning_rate(const Schedule& schedule, std::int64_t step, std::int64_t steps) {
  if (step <= schedule.warmup) return warmup_rate(schedule, step);
  if (schedule.type == ScheduleType::constant) return schedule.lr;
  const double done = static_cast<double>(step - schedule.warmup);
  const std::int64_t end = schedule.end > 0 ? schedule.end : steps;
  const double progress = std::min(1.0, done / static_cast<double>(std::max<std::int64_t>(1, end - schedule.warmup)));
  const double left =
      schedule.type == ScheduleType::linear ? 1 - progress : (1 + std::cos(std::numbers::pi * progress)) / 2;
  return schedule.lr_end + (schedule.lr - schedule.lr_end) * left;
}

}  // namespace zeepo
