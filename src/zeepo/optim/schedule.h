// The learning rate of each step.
#pragma once

#include <cstdint>

namespace zeepo {

enum class ScheduleType { constant, linear, cosine };
enum class WarmupShape { linear, log };  // log: fast at first, by the logarithm of the step

struct Schedule {
  ScheduleType type = ScheduleType::constant;
  std::int64_t warmup = 0;  // steps over which the rate rises from `lr_start` to `lr`, reached at step `warmup`
  double lr = 1e-3;
  double lr_end = 0;  // linear and cosine reach it at step `end`
  double lr_start = 0;
  WarmupShape warmup_shape = WarmupShape::linear;
  std::int64_t end = 0;  // 0: the last step
};

// step counts from 1 to steps.
double learning_rate(const Schedule& schedule, std::int64_t step, std::int64_t steps);

}  // namespace zeepo
