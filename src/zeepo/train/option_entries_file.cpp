#include <cmath>

#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;
constexpr double kLeastScale = 0x1p-24, kMostScale = 0x1p31;

// fp16's loss scale: dynamic from 2^initial_scale_power, or fixed.
void add_loss_scale(std::vector<TrainOption>& table) {
  TrainOption power = other(
      {.name = "fp16.initial_scale_power", .deepspeed = {"fp16.initial_scale_power"}},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        if (!o.loss_scale.fixed) o.loss_scale.initial = static_cast<float>(std::exp2(parse_number(label, text)));
      },
      [](const TrainOptions& o) {
        return o.loss_scale.fixed ? "" : fmt::format("{}", std::log2(static_cast<double>(o.loss_scale.initial)));
      });
  power.from_json = [](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    const auto value = block.whole(key, 0, 31);
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  };
  table.push_back(power);
  TrainOption scale = other(
      {.name = "fp16.loss_scale", .deepspeed = {"fp16.loss_scale"}},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        const float value = parse_float(label, text);
        o.loss_scale.fixed = value != 0;
        if (o.loss_scale.fixed) o.loss_scale.initial = value;
      },
      [](const TrainOptions& o) { return fmt::format("{}", o.loss_scale.fixed ? o.loss_scale.initial : 0); });
  scale.check = [](const TrainOptions& o) {
    if (!(o.loss_scale.initial > 0) || std::isinf(o.loss_scale.initial))
      throw UsageError("train: fp16.loss_scale {}: must be a number above 0", o.loss_scale.initial);
  };
  scale.from_json = [](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    const auto value = block.number(key, 0, kMostScale);
    if (value && *value != 0 && *value < kLeastScale)
      block.refuse(key, fmt::format("must be 0, for a dynamic one, or at least {}", kLeastScale));
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  };
  table.push_back(scale);
  TrainOption least = number({.name = "fp16.min_loss_scale", .deepspeed = {"fp16.min_loss_scale"}},
                             [](auto& o) -> auto& { return o.loss_scale.least; }, {.least = kLeastScale});
  least.from_json = [](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    const auto value = block.number(key, kLeastScale, kMostScale);
    return value ? std::optional(fmt::format("{}", *value)) : std::nullopt;
  };
  table.push_back(least);
  table.push_back(whole({.name = "fp16.loss_scale_window", .deepspeed = {"fp16.loss_scale_window"}},
                        [](auto& o) -> auto& { return o.loss_scale.patience; }, {.least = 1}));
  table.push_back(whole({.name = "fp16.hysteresis", .deepspeed = {"fp16.hysteresis"}},
                        [](auto& o) -> auto& { return o.loss_scale.hysteresis; }, {.least = 1}));
}

}  // namespace

void add_file_options(std::vector<TrainOption>& table) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 30;
  table.push_back(number(
      {.name = "scheduler.params.warmup_min_lr",
       .deepspeed = {"scheduler.params.warmup_min_lr"},
       .deepspeed_also = {"scheduler.params.warmup_min_ratio"}},
      [](auto& o) -> auto& { return o.schedule.lr_start; }));
  table.push_back(choice({.name = "scheduler.params.warmup_type", .deepspeed = {"scheduler.params.warmup_type"}},
                         [](auto& o) -> auto& { return o.schedule.warmup_shape; },
                         {{"linear", WarmupShape::linear}, {"log", WarmupShape::log}}));
  table.push_back(whole({.name = "scheduler.params.total_num_steps", .deepspeed = {"scheduler.params.total_num_steps"}},
                        [](auto& o) -> auto& { return o.schedule.end; }, {.least = 1, .absent = 0}));
  add_loss_scale(table);
  table.push_back(whole({.name = "zero_optimization.sub_group_size",
                         .effect = Effect::execution,
                         .deepspeed = {"zero_optimization.sub_group_size"}},
                        [](auto& o) -> auto& { return o.piece_elements; },
                        {.least = 1, .most = kMostElements, .absent = 0}));
  TrainOption block_size =
      whole({.name = "aio.block_size",
             .effect = Effect::execution,
             .ranks = Ranks::may_differ,
             .deepspeed = {"aio.block_size"}},
            [](auto& o) -> auto& { return o.io.call_bytes; }, {.least = kDirectAlignment, .most = kMostBytes});
  block_size.check = [in_range = block_size.check](const TrainOptions& o) {
    in_range(o);
    if (o.io.call_bytes % kDirectAlignment != 0)
      throw UsageError("train: aio.block_size {}: must be a multiple of {}", o.io.call_bytes, kDirectAlignment);
  };
  table.push_back(block_size);
  table.push_back(whole({.name = "aio.queue_depth",
                         .effect = Effect::execution,
                         .ranks = Ranks::may_differ,
                         .deepspeed = {"aio.queue_depth"}},
                        [](auto& o) -> auto& { return o.io.depth; }, {.least = 1, .most = 4096}));
  table.push_back(whole({.name = "steps_per_print",
                         .effect = Effect::execution,
                         .ranks = Ranks::may_differ,
                         .deepspeed = {"steps_per_print"}},
                        [](auto& o) -> auto& { return o.print_every; }, {.least = 1}));
}

}  // namespace zeepo
