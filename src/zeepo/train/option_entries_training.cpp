#include "zeepo/binding/model_units.h"
#include "zeepo/train/option_entries.h"
#include "zeepo/train/option_kinds.h"

namespace zeepo {

using namespace option_kinds;

namespace {

TrainOption blocks_per_unit(TrainOption option) {
  const auto field = [](auto& o) -> auto& { return o.blocks_per_unit; };
  option = whole(std::move(option), field, {.least = 1, .absent = 0});
  option.type = "TEXT";
  option.parse = [parse = option.parse](TrainOptions& o, const std::string& text) {
    if (text == "auto")
      o.blocks_per_unit = 0;
    else
      parse(o, text);
  };
  option.text = [text = option.text](const TrainOptions& o) { return o.blocks_per_unit == 0 ? "auto" : text(o); };
  return option;
}

}  // namespace

void add_data_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::data;
  table.push_back(path(
      {.name = "--model",
       .group = kGroup,
       .help = "A Hugging Face directory: config.json, safetensors, tokenizer.json",
       .required = true,
       .ranks = Ranks::agree_in_contents},
      [](auto& o) -> auto& { return o.model; }));
  table.push_back(flag(
      {.name = "--from-scratch", .group = kGroup, .help = "Start from weights drawn from --seed, not from the files"},
      [](auto& o) -> auto& { return o.from_scratch; }));
  table.push_back(path(
      {.name = "--data",
       .group = kGroup,
       .help = "Token file (.bin), text (.txt) or JSON lines (.jsonl) with \"text\", \"messages\", or \"prompt\" and "
               "\"completion\"",
       .required = true,
       .ranks = Ranks::agree_in_contents},
      [](auto& o) -> auto& { return o.data; }));
  table.push_back(whole(
      {.name = "--seq-len", .group = kGroup, .help = "Tokens a sample", .otherwise = "1024, or the model's positions"},
      [](auto& o) -> auto& { return o.seq_len; }, {.least = 1, .absent = 0}));
  table.push_back(whole({.name = "--micro-batch",
                         .group = kGroup,
                         .help = "Samples computed at a time",
                         .deepspeed = {"train_micro_batch_size_per_gpu"},
                         .deepspeed_also = {"train_batch_size"}},
                        [](auto& o) -> auto& { return o.micro_batch; }, {.least = 1, .most = kMostSamples}));
  table.push_back(whole({.name = "--grad-accum",
                         .group = kGroup,
                         .help = "Micro-batches a step",
                         .deepspeed = {"gradient_accumulation_steps"},
                         .deepspeed_also = {"train_batch_size"}},
                        [](auto& o) -> auto& { return o.grad_accum; }, {.least = 1, .most = kMostSamples}));
  table.push_back(
      whole({.name = "--steps", .group = kGroup, .help = "The last step", .otherwise = "once through the data"},
            [](auto& o) -> auto& { return o.steps; }, {.absent = 0}));
  table.push_back(flag(
      {.name = "--no-shuffle", .group = kGroup, .help = "Take the samples in the order of the file"},
      [](const TrainOptions& o) { return o.order == Order::as_is; },
      [](TrainOptions& o, bool as_is) { o.order = as_is ? Order::as_is : Order::shuffled; }));
  table.push_back(whole(
      {.name = "--seed",
       .group = kGroup,
       .help = "Of the order, fresh weights, dropout and the rounding of narrow moments"},
      [](auto& o) -> auto& { return o.seed; }));
}

void add_optimizer_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::optimizer;
  table.push_back(
      choice({.name = "--optimizer",
              .group = kGroup,
              .help = "adamw, adam or sgd",
              .deepspeed = {"optimizer.type"},
              .deepspeed_also = {"optimizer.params.adam_w_mode"}},
             [](auto& o) -> auto& { return o.optimizer.type; },
             {{"adamw", OptimizerType::adamw}, {"adam", OptimizerType::adam}, {"sgd", OptimizerType::sgd}},
             {{"AdamW", OptimizerType::adamw}, {"Adam", OptimizerType::adam}, {"SGD", OptimizerType::sgd}}));
  table.push_back(
      choice({.name = "--moments",
              .group = kGroup,
              .help = "How the optimizer's moments are kept: fp32, bf16 (2 bytes each), or 8bit (adamw, adam)"},
             [](auto& o) -> auto& { return o.optimizer.moments; },
             {{"fp32", MomentType::fp32}, {"bf16", MomentType::bf16}, {"8bit", MomentType::eight_bit}}));
  table.push_back(number(
      {.name = "--lr",
       .group = kGroup,
       .help = "Learning rate",
       .deepspeed = {"optimizer.params.lr", "scheduler.params.warmup_max_lr"}},
      [](auto& o) -> auto& { return o.schedule.lr; }));
  TrainOption betas = other(
      {.name = "--betas", .group = kGroup, .help = "Of adamw and adam", .deepspeed = {"optimizer.params.betas"}},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        const std::size_t comma = text.find(',');
        if (comma == std::string::npos) throw UsageError("{} {}: write two numbers, like 0.9,0.95", label, text);
        o.optimizer.beta1 = parse_float(label, text.substr(0, comma));
        o.optimizer.beta2 = parse_float(label, text.substr(comma + 1));
      },
      [](const TrainOptions& o) { return fmt::format("{},{}", o.optimizer.beta1, o.optimizer.beta2); });
  betas.check = [](const TrainOptions& o) {
    for (const float beta : {o.optimizer.beta1, o.optimizer.beta2})
      if (!(beta >= 0 && beta < 1)) throw UsageError("train: --betas {}: must be at least 0 and below 1", beta);
  };
  betas.from_json = [](DeepSpeedBlock& block, const char* key) -> std::optional<std::string> {
    const auto pair = block.pair_below(key, 0, 1);
    return pair ? std::optional(fmt::format("{},{}", pair->first, pair->second)) : std::nullopt;
  };
  table.push_back(betas);
  table.push_back(number(
      {.name = "--eps", .group = kGroup, .help = "Of adamw and adam", .deepspeed = {"optimizer.params.eps"}},
      [](auto& o) -> auto& { return o.optimizer.eps; }));
  table.push_back(
      number({.name = "--momentum", .group = kGroup, .help = "Of sgd", .deepspeed = {"optimizer.params.momentum"}},
             [](auto& o) -> auto& { return o.optimizer.momentum; }, {.below = 1}));
  table.push_back(number(
      {.name = "--weight-decay",
       .group = kGroup,
       .help = "Of what --decay names",
       .deepspeed = {"optimizer.params.weight_decay"}},
      [](auto& o) -> auto& { return o.optimizer.weight_decay; }));
  table.push_back(choice({.name = "--decay", .group = kGroup, .help = "What decays: all, or matrices alone"},
                         [](auto& o) -> auto& { return o.decay; },
                         {{"all", Decay::all}, {"matrices", Decay::matrices}}));
  table.push_back(number(
      {.name = "--clip",
       .group = kGroup,
       .help = "Largest gradient norm; 0: no clipping",
       .deepspeed = {"gradient_clipping"}},
      [](auto& o) -> auto& { return o.clip; }));
  table.push_back(choice(
      {.name = "--schedule", .group = kGroup, .help = "constant, linear or cosine", .deepspeed = {"scheduler.type"}},
      [](auto& o) -> auto& { return o.schedule.type; },
      {{"constant", ScheduleType::constant}, {"linear", ScheduleType::linear}, {"cosine", ScheduleType::cosine}},
      {{"WarmupLR", ScheduleType::constant},
       {"WarmupDecayLR", ScheduleType::linear},
       {"WarmupCosineLR", ScheduleType::cosine}}));
  table.push_back(whole(
      {.name = "--warmup",
       .group = kGroup,
       .help = "Steps from 0 up to --lr",
       .deepspeed = {"scheduler.params.warmup_num_steps"}},
      [](auto& o) -> auto& { return o.schedule.warmup; }));
  table.push_back(number(
      {.name = "--lr-end",
       .group = kGroup,
       .help = "Where linear and cosine end",
       .deepspeed_also = {"scheduler.params.warmup_min_lr", "scheduler.params.cos_min_ratio"}},
      [](auto& o) -> auto& { return o.schedule.lr_end; }));
  table.push_back(number({.name = "--dropout", .group = kGroup, .help = "Instead of config.json's"},
                         [](auto& o) -> auto& { return o.dropout; }, {.below = 1}));
}

void add_numerics_options(std::vector<TrainOption>& table) {
  constexpr OptionGroup kGroup = OptionGroup::numerics;
  table.push_back(other(
      {.name = "--dtype",
       .group = kGroup,
       .help = "fp32, bf16 or fp16; 16-bit runs keep the fp32 weights",
       .otherwise = "bf16 on a GPU, else fp32",
       .deepspeed_also = {"fp16.enabled", "bf16.enabled", "bfloat16.enabled"}},
      [](const std::string& label, const std::string& text, TrainOptions& o) {
        o.dtype = parse_dtype_option(label, text);
      },
      [](const TrainOptions& o) { return std::string(name_of(o.dtype)); }));
  table.push_back(choice({.name = "--matmul-dtype",
                          .group = kGroup,
                          .help = "What linear layers compute y and the gradient of their input with: same, the run's "
                                  "dtype, or fp8, 8-bit floats on a GPU: faster, other rounding"},
                         [](auto& o) -> auto& { return o.products; },
                         {{"same", Products::as_stored}, {"fp8", Products::fp8}}));
  table.push_back(flag(
      {.name = "--batch-invariant",
       .group = kGroup,
       .help = "On a GPU, choose kernels so that a row's result does not depend on the other rows of its "
               "batch, as on a CPU always: slower for few rows"},
      [](auto& o) -> auto& { return o.batch_invariant; }));
  table.push_back(
      choice({.name = "--sum-order",
              .group = kGroup,
              .help = "How the gradients of the micro-batches of a step are added: global, the same bits on "
                      "any number of ranks; local, a rank alone lets the products add to the sum: faster, "
                      "other rounding"},
             [](auto& o) -> auto& { return o.sum_order; }, {{"global", SumOrder::global}, {"local", SumOrder::local}}));
  table.push_back(
      choice({.name = "--reduce",
              .group = kGroup,
              .help = "Gradients over the ranks: each micro-step, or last, their local sum (stages 0 and 1): "
                      "less traffic, other rounding"},
             [](auto& o) -> auto& { return o.reduce; }, {{"each", Reduce::each}, {"last", Reduce::last}}));
  table.push_back(blocks_per_unit(
      {.name = "--blocks-per-unit",
       .group = kGroup,
       .help =
           fmt::format("Transformer blocks that travel together; the gradient norm is summed by them. auto: as many "
                       "small ones as have {} weights, by the model alone",
                       kLeastUnitElements)}));
  table.push_back(
      whole({.name = "--tile-linear",
             .group = kGroup,
             .help = "Run each linear layer of the blocks as this many tiles, gathered and reduced one at a "
                     "time: less working memory, the same result but for rounding"},
            [](auto& o) -> auto& { return o.linear_tiles; }, {.least = 1, .most = kMostSamples}));
}

}  // namespace zeepo
