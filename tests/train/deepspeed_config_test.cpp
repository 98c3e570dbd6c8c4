#include "zeepo/train/deepspeed_config.h"

#include <cmath>
#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using Flags = std::set<std::string>;

DeepSpeedConfig parse(const std::string& json) { return parse_deepspeed_config(json, "ds.json"); }

// zeepo's defaults with the file laid over them.
TrainOptions laid(const std::string& json, const Flags& flags = {}, int ranks = 1, TrainOptions options = {}) {
  apply(parse(json), flags, ranks, options);
  check(options);
  return options;
}

std::string fault(const std::string& json, const Flags& flags = {}, int ranks = 1) {
  return error_text([&] { laid(json, flags, ranks); });
}

TrainOptions with_batch(std::int64_t micro, std::int64_t accum) {
  TrainOptions options;
  options.micro_batch = micro;
  options.grad_accum = accum;
  return options;
}

TEST(DeepSpeedConfig, AnEmptyFileChangesNothing) {
  const TrainOptions options = laid("{}"), untouched;
  EXPECT_EQ(options.micro_batch, untouched.micro_batch);
  EXPECT_EQ(options.optimizer.beta2, untouched.optimizer.beta2);
  EXPECT_EQ(options.schedule.lr, untouched.schedule.lr);
  EXPECT_EQ(options.clip, untouched.clip);
  EXPECT_EQ(options.dtype, untouched.dtype);
  EXPECT_EQ(options.prefetch_bytes, untouched.prefetch_bytes);
  EXPECT_EQ(options.print_every, 1);
  EXPECT_EQ(options.piece_elements, 0);
  EXPECT_TRUE(options.placement.on_device());
  EXPECT_EQ(warning_of(parse("{}")), "");
}

TEST(DeepSpeedConfig, ScalarsOfTheTop) {
  const auto options = laid(R"({"gradient_clipping": 0.25, "steps_per_print": 7})");
  EXPECT_EQ(options.clip, 0.25f);
  EXPECT_EQ(options.print_every, 7);
  EXPECT_EQ(laid(R"({"gradient_clipping": 0.25})", {"--clip"}).clip, 1.0f);
}

// The third of train_batch_size = micro-batch x accumulation x ranks.
TEST(DeepSpeedConfig, BatchSizesGiveTheMissingOne) {
  const auto expect = [](const std::string& json, int ranks, std::int64_t micro, std::int64_t accum) {
    const auto options = laid(json, {}, ranks);
    EXPECT_EQ(options.micro_batch, micro) << json;
    EXPECT_EQ(options.grad_accum, accum) << json;
  };
  expect(R"({"train_micro_batch_size_per_gpu": 4})", 2, 4, 1);
  expect(R"({"gradient_accumulation_steps": 3})", 2, 1, 3);
  expect(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})", 2, 4, 3);
  expect(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4})", 2, 4, 3);
  expect(R"({"train_batch_size": 24, "gradient_accumulation_steps": 3})", 2, 4, 3);
  expect(R"({"train_batch_size": 24})", 2, 12, 1);
  expect(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})", 2, 4, 3);
  expect(R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": null})",
         1, 24, 1);
}

TEST(DeepSpeedConfig, BatchSizesThatContradictEachOtherAreNamed) {
  EXPECT_TRUE(
      names(fault(R"({"train_batch_size": 25, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})",
                  {}, 2),
            "ds.json", "train_batch_size 25", "train_micro_batch_size_per_gpu 4", "gradient_accumulation_steps 3",
            "2 ranks", "24"));
  EXPECT_TRUE(names(fault(R"({"train_batch_size": 25, "train_micro_batch_size_per_gpu": 4})", {}, 2),
                    "train_batch_size 25", "train_micro_batch_size_per_gpu 4 x 2 ranks"));
  EXPECT_TRUE(names(fault(R"({"train_batch_size": 3})", {}, 2), "train_batch_size 3", "2 ranks"));
  EXPECT_TRUE(names(fault(R"({"train_batch_size": 1e9})"), "train_batch_size 1000000000", "1048576"));
}

TEST(DeepSpeedConfig, BatchFlagsWinAndTheRestFollows) {
  const std::string all =
      R"({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 6})";
  auto options = laid(all, {"--micro-batch"}, 1, with_batch(2, 1));
  EXPECT_EQ(options.micro_batch, 2);
  EXPECT_EQ(options.grad_accum, 6);
  options = laid(all, {"--micro-batch", "--grad-accum"}, 1, with_batch(5, 7));
  EXPECT_EQ(options.micro_batch, 5);
  EXPECT_EQ(options.grad_accum, 7);
  options = laid(R"({"train_batch_size": 24})", {"--micro-batch"}, 2, with_batch(3, 1));
  EXPECT_EQ(options.grad_accum, 4);
  options = laid(R"({"train_batch_size": 24})", {"--grad-accum"}, 2, with_batch(1, 3));
  EXPECT_EQ(options.micro_batch, 4);
  EXPECT_TRUE(names(error_text([&] { laid(R"({"train_batch_size": 24})", {"--micro-batch"}, 1, with_batch(5, 1)); }),
                    "train_batch_size 24", "--micro-batch 5"));
  // A flag out of range is the flag's fault.
  EXPECT_TRUE(names(error_text([&] { laid(R"({"train_batch_size": 24})", {"--micro-batch"}, 1, with_batch(0, 1)); }),
                    "--micro-batch 0"));
}

TEST(DeepSpeedConfig, OptimizerAndItsParams) {
  const std::string json = R"({"optimizer": {"type": "AdamW", "params":
    {"lr": 3e-4, "betas": [0.8, 0.999], "eps": 1e-7, "weight_decay": 0.01, "momentum": 0.5, "torch_adam": true}}})";
  auto options = laid(json);
  EXPECT_EQ(options.optimizer.type, OptimizerType::adamw);
  EXPECT_EQ(options.schedule.lr, 3e-4);
  EXPECT_EQ(options.optimizer.beta1, 0.8f);
  EXPECT_EQ(options.optimizer.beta2, 0.999f);
  EXPECT_EQ(options.optimizer.eps, 1e-7f);
  EXPECT_EQ(options.optimizer.weight_decay, 0.01f);
  EXPECT_EQ(options.optimizer.momentum, 0.5f);
  EXPECT_TRUE(parse(json).unused.empty());

  options = laid(json, {"--lr", "--betas", "--eps", "--weight-decay", "--momentum"});
  EXPECT_EQ(options.schedule.lr, 1e-3);
  EXPECT_EQ(options.optimizer.beta1, 0.9f);
  EXPECT_EQ(options.optimizer.beta2, 0.95f);
  EXPECT_EQ(options.optimizer.eps, 1e-8f);
  EXPECT_EQ(options.optimizer.weight_decay, 0.1f);
  EXPECT_EQ(options.optimizer.momentum, 0.9f);
}

TEST(DeepSpeedConfig, AdamDecaysAsAdamWUnlessToldNotTo) {
  const auto type = [](const std::string& block, const Flags& flags = {}) {
    return laid(R"({"optimizer": )" + block + "}", flags).optimizer.type;
  };
  EXPECT_EQ(type(R"({"type": "Adam"})"), OptimizerType::adamw);
  EXPECT_EQ(type(R"({"type": "adam", "params": {"adam_w_mode": true}})"), OptimizerType::adamw);
  EXPECT_EQ(type(R"({"type": "Adam", "params": {"adam_w_mode": false}})"), OptimizerType::adam);
  EXPECT_EQ(type(R"({"type": "AdamW", "params": {"adam_w_mode": false}})"), OptimizerType::adamw);
  EXPECT_EQ(type(R"({"type": "SGD"})"), OptimizerType::sgd);
  EXPECT_EQ(type(R"({"type": "SGD"})", {"--optimizer"}), OptimizerType::adamw);
}

TEST(DeepSpeedConfig, WarmupLr) {
  const std::string json = R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, "scheduler": {"type": "WarmupLR",
    "params": {"warmup_min_lr": 1e-6, "warmup_max_lr": 2e-3, "warmup_num_steps": 50, "warmup_type": "log"}}})";
  const auto schedule = laid(json).schedule;
  EXPECT_EQ(schedule.type, ScheduleType::constant);
  EXPECT_EQ(schedule.lr, 2e-3);  // the scheduler's, as in DeepSpeed
  EXPECT_EQ(schedule.lr_start, 1e-6);
  EXPECT_EQ(schedule.warmup, 50);
  EXPECT_EQ(schedule.warmup_shape, WarmupShape::log);
  const auto flagged = laid(json, {"--schedule", "--lr", "--warmup"}).schedule;
  EXPECT_EQ(flagged.type, ScheduleType::constant);
  EXPECT_EQ(flagged.lr, 1e-3);
  EXPECT_EQ(flagged.warmup, 0);
}

TEST(DeepSpeedConfig, WarmupDecayLrEndsWhereItStarted) {
  const std::string json = R"({"scheduler": {"type": "WarmupDecayLR", "params":
    {"warmup_min_lr": 1e-6, "warmup_max_lr": "auto", "warmup_num_steps": 50, "total_num_steps": 1000}}})";
  const auto schedule = laid(json).schedule;
  EXPECT_EQ(schedule.type, ScheduleType::linear);
  EXPECT_EQ(schedule.lr, 1e-3);
  EXPECT_EQ(schedule.lr_end, 1e-6);
  EXPECT_EQ(schedule.end, 1000);
  EXPECT_EQ(schedule.warmup_shape, WarmupShape::linear);
  EXPECT_EQ(laid(json, {"--lr-end"}).schedule.lr_end, 0);
}

TEST(DeepSpeedConfig, WarmupCosineLrIsInPartsOfTheRate) {
  const std::string json = R"({"optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": {"type":
    "WarmupCosineLR", "params": {"warmup_min_ratio": 0.25, "cos_min_ratio": 0.5, "warmup_num_steps": 5,
    "total_num_steps": "auto"}}})";
  auto schedule = laid(json).schedule;
  EXPECT_EQ(schedule.type, ScheduleType::cosine);
  EXPECT_EQ(schedule.lr_start, 0.125);
  EXPECT_EQ(schedule.lr_end, 0.25);
  EXPECT_EQ(schedule.end, 0);
  TrainOptions flagged;
  flagged.schedule.lr = 4;
  schedule = laid(json, {"--lr"}, 1, flagged).schedule;
  EXPECT_EQ(schedule.lr_start, 1);
  EXPECT_EQ(schedule.lr_end, 2);
}

TEST(DeepSpeedConfig, Dtypes) {
  EXPECT_EQ(laid(R"({"fp16": {"enabled": true}})").dtype, DType::f16);
  EXPECT_EQ(laid(R"({"bf16": {"enabled": true}})").dtype, DType::bf16);
  EXPECT_EQ(laid(R"({"bfloat16": {"enabled": true}, "fp16": {"enabled": false}})").dtype, DType::bf16);
  EXPECT_EQ(laid(R"({"fp16": {"enabled": true}})", {"--dtype"}).dtype, DType::f32);
  TrainOptions bf16;
  bf16.dtype = DType::bf16;  // as a default
  EXPECT_EQ(laid(R"({"fp16": {"enabled": false}})", {}, 1, bf16).dtype, DType::f32);
  EXPECT_EQ(laid(R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": false}})", {}, 1, bf16).dtype, DType::bf16);
  EXPECT_EQ(laid(R"({"gradient_clipping": 1})", {}, 1, bf16).dtype, DType::bf16);
  EXPECT_TRUE(names(fault(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})"), "ds.json", "bf16.enabled",
                    "true", "both"));
}

TEST(DeepSpeedConfig, LossScale) {
  auto scale = laid(R"({"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 12, "loss_scale_window": 500,
    "hysteresis": 2, "min_loss_scale": 4}})")
                   .loss_scale;
  EXPECT_EQ(scale.initial, 4096);
  EXPECT_EQ(scale.patience, 500);
  EXPECT_EQ(scale.hysteresis, 2);
  EXPECT_EQ(scale.least, 4);
  EXPECT_FALSE(scale.fixed);
  scale = laid(R"({"fp16": {"enabled": true, "loss_scale": 128, "initial_scale_power": 16}})").loss_scale;
  EXPECT_EQ(scale.initial, 128);
  EXPECT_TRUE(scale.fixed);
}

TEST(DeepSpeedConfig, ZeroStagePlacesAndShares) {
  const std::string json = R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/a",
    "ratio": 0.25}, "offload_optimizer": {"device": "cpu", "ratio": 0.5, "nvme_path": "/not-used"}}})";
  auto options = laid(json);
  EXPECT_EQ(options.stage, 3);
  EXPECT_EQ(options.placement.params, (Shares{0, 0.25}));
  EXPECT_EQ(options.placement.optimizer, (Shares{0.5, 0}));
  EXPECT_EQ(options.nvme_paths, std::vector<std::filesystem::path>{"/a"});

  TrainOptions given;
  given.nvme_paths = {"/flag"};
  options = laid(json, {"--stage", "--offload-param", "--offload-optimizer", "--nvme-path"}, 1, given);
  EXPECT_EQ(options.stage, 0);
  EXPECT_TRUE(options.placement.on_device());
  EXPECT_EQ(options.nvme_paths, given.nvme_paths);

  EXPECT_EQ(laid(R"({"zero_optimization": {"offload_optimizer": {"device": "cpu"}}})").placement.optimizer,
            (Shares{1, 0}));
  EXPECT_TRUE(laid(R"({"zero_optimization": {"offload_param": {"device": "none", "ratio": 0.5}, "offload_optimizer":
    null}})")
                  .placement.on_device());
}

TEST(DeepSpeedConfig, NvmePathsAreSharedByBothAndMustBeThere) {
  const std::string both = R"({"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/a"},
    "offload_optimizer": {"device": "nvme", "nvme_path": ")";
  EXPECT_EQ(laid(both + R"(/b"}}})").nvme_paths, (std::vector<std::filesystem::path>{"/a", "/b"}));
  EXPECT_EQ(laid(both + R"(/a"}}})").nvme_paths, (std::vector<std::filesystem::path>{"/a"}));
  const std::string none = R"({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}})";
  EXPECT_TRUE(names(fault(none), "ds.json", "zero_optimization.offload_optimizer.nvme_path", "--nvme-path"));
  TrainOptions given;
  given.nvme_paths = {"/flag"};
  EXPECT_EQ(laid(none, {"--nvme-path"}, 1, given).placement.optimizer, (Shares{0, 1}));
}

TEST(DeepSpeedConfig, SizesInElementsBecomeBytesOfTheDtype) {
  const auto prefetch = [](const std::string& rest, const Flags& flags = {}) {
    return laid(R"({"bf16": {"enabled": true}, "zero_optimization": {)" + rest + "}}", flags).prefetch_bytes;
  };
  EXPECT_EQ(prefetch(R"("stage3_prefetch_bucket_size": 5e6)"), 10'000'000);
  EXPECT_EQ(prefetch(R"("stage3_prefetch_bucket_size": 5e6)", {"--dtype"}), 20'000'000);
  EXPECT_EQ(prefetch(R"("stage3_prefetch_bucket_size": 0)"), 0);
  EXPECT_EQ(prefetch(R"("stage3_prefetch_bucket_size": 5e6, "stage3_max_live_parameters": 1e6)"), 2'000'000);
  EXPECT_EQ(prefetch(R"("stage3_max_live_parameters": 1e9)"), TrainOptions{}.prefetch_bytes);
  EXPECT_EQ(prefetch(R"("stage3_prefetch_bucket_size": 5e6)", {"--prefetch"}), TrainOptions{}.prefetch_bytes);
  EXPECT_EQ(laid(R"({"zero_optimization": {"sub_group_size": 1e9}})").piece_elements, 1'000'000'000);
}

TEST(DeepSpeedConfig, Aio) {
  const auto options = laid(R"({"aio": {"block_size": 262144, "queue_depth": 32}})");
  EXPECT_EQ(options.io.call_bytes, 262144u);
  EXPECT_EQ(options.io.depth, 32);
  EXPECT_TRUE(names(fault(R"({"aio": {"block_size": 5000}})"), "aio.block_size", "5000", "multiple of 4096"));
}

TEST(DeepSpeedConfig, ActivationCheckpointing) {
  const auto laid_block = [](const std::string& block, const Flags& flags = {}) {
    return laid(R"({"activation_checkpointing": )" + block + "}", flags);
  };
  EXPECT_FALSE(laid_block(R"({"partition_activations": false, "cpu_checkpointing": false})").activation_checkpointing);
  EXPECT_FALSE(laid_block(R"({"number_checkpoints": null})").activation_checkpointing);
  EXPECT_TRUE(laid_block(R"({"number_checkpoints": 4})").activation_checkpointing);
  EXPECT_TRUE(laid_block(R"({"partition_activations": true})").activation_checkpointing);
  const auto options = laid_block(R"({"cpu_checkpointing": true})");
  EXPECT_TRUE(options.activation_checkpointing);
  EXPECT_EQ(options.placement.activations, Place::host);
  EXPECT_EQ(laid_block(R"({"cpu_checkpointing": true})", {"--offload-activations"}).placement.activations,
            Place::device);
}

TEST(DeepSpeedConfig, KeysThatAreNotActedOnAreNamedInOneLine) {
  const auto config = parse(R"({"wall_clock_breakdown": false, "flops_profiler": {"enabled": false},
    "zero_optimization": {"overlap_comm": true, "stagee": 3, "reduce_bucket_size": 5e8,
      "offload_param": {"pin_memory": true, "buffer_count": 5}},
    "optimizer": {"type": "AdamW", "params": {"amsgrad": false, "l r\n": 1}},
    "fp16": {"consecutive_hysteresis": true}, "aio": {"thread_count": 1}})");
  EXPECT_EQ(config.unused,
            (std::vector<std::string>{"optimizer.params.amsgrad", R"(optimizer.params."l r\n")",
                                      "fp16.consecutive_hysteresis", "zero_optimization.offload_param.pin_memory",
                                      "zero_optimization.offload_param.buffer_count", "zero_optimization.overlap_comm",
                                      "zero_optimization.reduce_bucket_size", "zero_optimization.stagee",
                                      "aio.thread_count", "wall_clock_breakdown", "flops_profiler"}));
  const std::string warning = warning_of(config);
  for (const auto& key : config.unused) EXPECT_TRUE(names(warning, key));
  EXPECT_EQ(warning.find('\n'), std::string::npos);
  EXPECT_TRUE(warning.starts_with("ds.json: "));
}

TEST(DeepSpeedConfig, ZeROPlusPlusIsLessCommunication) {
  const auto options = laid(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": true,
    "zero_quantized_gradients": true, "zero_hpz_partition_size": 8}})");
  EXPECT_EQ(options.wire.gather, WireType::int8);
  EXPECT_EQ(options.wire.reduce, WireType::int4);
  EXPECT_TRUE(options.wire.node_copy);
  EXPECT_EQ(options.wire.node_size, 8);
  const auto off = laid(R"({"zero_optimization": {"stage": 3, "zero_quantized_weights": false,
    "zero_quantized_gradients": false, "zero_hpz_partition_size": 1}})");
  EXPECT_EQ(off.wire, WireOptions{});
}

TEST(DeepSpeedConfig, AutoAsksForNothing) {
  EXPECT_TRUE(parse(R"({"zero_optimization": {"reduce_bucket_size": "auto", "overlap_comm": "auto"}})").unused.empty());
  EXPECT_EQ(laid(R"({"optimizer": "auto", "zero_optimization": {"stage": "auto"}})").stage, 0);
}

struct Wrong {
  const char *json, *key, *value;
};

TEST(DeepSpeedConfig, AWrongValueIsNamedWithFileAndKey) {
  for (const auto& [json, key, value] : std::initializer_list<Wrong>{
           {R"({"train_batch_size": 0})", "train_batch_size", "0"},
           {R"({"train_batch_size": 1.5})", "train_batch_size", "1.5"},
           {R"({"train_micro_batch_size_per_gpu": "4"})", "train_micro_batch_size_per_gpu", "\"4\""},
           {R"({"train_micro_batch_size_per_gpu": 1048577})", "train_micro_batch_size_per_gpu", "1048577"},
           {R"({"gradient_accumulation_steps": -1})", "gradient_accumulation_steps", "-1"},
           {R"({"gradient_accumulation_steps": 18446744073709551615})", "gradient_accumulation_steps", "1844674407"},
           {R"({"gradient_clipping": -0.5})", "gradient_clipping", "-0.5"},
           {R"({"gradient_clipping": true})", "gradient_clipping", "true"},
           {R"({"gradient_clipping": null})", "gradient_clipping", "null"},
           {R"({"steps_per_print": 0})", "steps_per_print", "0"},
           {R"({"optimizer": "AdamW"})", "optimizer", "AdamW"},
           {R"({"optimizer": {}})", "optimizer.type", "absent"},
           {R"({"optimizer": {"type": "Lamb"}})", "optimizer.type", "Lamb"},
           {R"({"optimizer": {"type": 3}})", "optimizer.type", "3"},
           {R"({"optimizer": {"type": "Adam", "params": []}})", "optimizer.params", "[]"},
           {R"({"optimizer": {"type": "Adam", "params": {"lr": -1}}})", "optimizer.params.lr", "-1"},
           {R"({"optimizer": {"type": "Adam", "params": {"lr": "1e-3"}}})", "optimizer.params.lr", "1e-3"},
           {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})", "optimizer.params.betas", "[0.9]"},
           {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 1]}}})", "optimizer.params.betas", "[0.9,1]"},
           {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.9999999999]}}})", "optimizer.params.betas",
            "0.9999999999"},
           {R"({"optimizer": {"type": "Adam", "params": {"eps": 1e300}}})", "optimizer.params.eps", "1e+300"},
           {R"({"optimizer": {"type": "Adam", "params": {"weight_decay": -1}}})", "optimizer.params.weight_decay",
            "-1"},
           {R"({"optimizer": {"type": "SGD", "params": {"momentum": 1}}})", "optimizer.params.momentum", "1"},
           {R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": 1}}})", "optimizer.params.adam_w_mode", "1"},
           {R"({"optimizer": {"type": "Adam", "params": {"torch_adam": "yes"}}})", "optimizer.params.torch_adam",
            "yes"},
           {R"({"scheduler": {}})", "scheduler.type", "absent"},
           {R"({"scheduler": {"type": "OneCycle"}})", "scheduler.type", "OneCycle"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}}})",
            "scheduler.params.warmup_num_steps", "-1"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "exp"}}})", "scheduler.params.warmup_type",
            "exp"},
           {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 2, "warmup_max_lr": 1}}})",
            "scheduler.params.warmup_min_lr", "2"},
           {R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 9, "total_num_steps": 8}}})",
            "scheduler.params.total_num_steps", "8"},
           {R"({"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 1.5}}})",
            "scheduler.params.cos_min_ratio", "1.5"},
           {R"({"fp16": true})", "fp16", "true"},
           {R"({"fp16": {"enabled": "true"}})", "fp16.enabled", "\"true\""},
           {R"({"fp16": {"loss_scale": -1}})", "fp16.loss_scale", "-1"},
           {R"({"fp16": {"loss_scale": 1e-300}})", "fp16.loss_scale", "1e-300"},
           {R"({"fp16": {"initial_scale_power": 32}})", "fp16.initial_scale_power", "32"},
           {R"({"fp16": {"loss_scale_window": 0}})", "fp16.loss_scale_window", "0"},
           {R"({"fp16": {"hysteresis": 0}})", "fp16.hysteresis", "0"},
           {R"({"fp16": {"min_loss_scale": 0}})", "fp16.min_loss_scale", "0"},
           {R"({"fp16": {"min_loss_scale": 8, "initial_scale_power": 2}})", "fp16.min_loss_scale", "8"},
           {R"({"bf16": {"enabled": 1}})", "bf16.enabled", "1"},
           {R"({"zero_optimization": true})", "zero_optimization", "true"},
           {R"({"zero_optimization": {"stage": 4}})", "zero_optimization.stage", "4"},
           {R"({"zero_optimization": {"overlap_comm": "yes"}})", "zero_optimization.overlap_comm", "yes"},
           {R"({"zero_optimization": {"reduce_bucket_size": "big"}})", "zero_optimization.reduce_bucket_size", "big"},
           {R"({"zero_optimization": {"sub_group_size": 0}})", "zero_optimization.sub_group_size", "0"},
           {R"({"zero_optimization": {"stage3_prefetch_bucket_size": -1}})",
            "zero_optimization.stage3_prefetch_bucket_size", "-1"},
           {R"({"zero_optimization": {"stage3_max_live_parameters": 1e300}})",
            "zero_optimization.stage3_max_live_parameters", "1e+300"},
           {R"({"zero_optimization": {"offload_param": "cpu"}})", "zero_optimization.offload_param", "cpu"},
           {R"({"zero_optimization": {"offload_param": {"device": "gpu"}}})", "zero_optimization.offload_param.device",
            "gpu"},
           {R"({"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": 1.1}}})",
            "zero_optimization.offload_optimizer.ratio", "1.1"},
           {R"({"zero_optimization": {"offload_optimizer": {"device": "cpu", "ratio": -0.1}}})",
            "zero_optimization.offload_optimizer.ratio", "-0.1"},
           {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": ""}}})",
            "zero_optimization.offload_optimizer.nvme_path", "\"\""},
           {R"({"zero_optimization": {"offload_optimizer": {"device": "nvme", "nvme_path": 3}}})",
            "zero_optimization.offload_optimizer.nvme_path", "3"},
           {R"({"aio": {"queue_depth": 0}})", "aio.queue_depth", "0"},
           {R"({"activation_checkpointing": {"cpu_checkpointing": 1}})", "activation_checkpointing.cpu_checkpointing",
            "1"},
           {R"({"activation_checkpointing": {"number_checkpoints": 0}})", "activation_checkpointing.number_checkpoints",
            "0"},
           {R"({"wall_clock_breakdown": 1})", "wall_clock_breakdown", "1"}}) {
    EXPECT_THROW(parse(json), UsageError) << json;
    EXPECT_TRUE(names(fault(json), "ds.json: ", std::string(key) + ": ", value)) << json;
  }
}

TEST(DeepSpeedConfig, HostileTextsAreRefused) {
  for (const std::string json :
       {"", "[]", "3", "null", "{", "{\"a\": NaN}", "{\"a\": 1e999}", "{\"a\": \"\xff\"}", "{\"fp16\": {}} x"}) {
    EXPECT_THROW(parse(json), UsageError) << json;
    EXPECT_TRUE(names(fault(json), "ds.json")) << json;
  }
  EXPECT_TRUE(names(fault(R"({"fp16": {"enabled": true, "enabled": false}})"), "ds.json", "\"enabled\"", "twice"));
  std::string deep = R"({"x": )";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  EXPECT_TRUE(names(fault(deep), "ds.json", "nested"));
  const std::string long_key(100'000, 'k');
  EXPECT_LT(warning_of(parse("{\"" + long_key + "\": 1}")).size(), 300u);
  EXPECT_LT(fault("{\"gradient_clipping\": \"" + long_key + "\"}").size(), 300u);
}

TEST(DeepSpeedConfig, AFileIsReadAndNamed) {
  const TestDirectory directory;
  const auto path = directory.path() / "ds.json";
  EXPECT_TRUE(names(error_text([&] { load_deepspeed_config(path); }), "--config", path.string()));
  std::ofstream(path) << R"({"gradient_clipping": -1, "x": 1})";
  EXPECT_TRUE(names(error_text([&] { load_deepspeed_config(path); }), "--config " + path.string() + ": gradient_cl"));
  std::ofstream(path) << R"({"gradient_clipping": 2})";
  EXPECT_EQ(load_deepspeed_config(path).values, (OptionTexts{{"--clip", "2"}}));
  std::ofstream(path) << std::string(kMaxDeepSpeedBytes + 1, ' ');
  EXPECT_TRUE(names(error_text([&] { load_deepspeed_config(path); }), "--config", path.string()));
}

// As users have them.
TEST(DeepSpeedConfig, ZeRO3WithCpuOffload) {
  const std::string json = R"({
    "train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_clipping": 1.0, "steps_per_print": 10,
    "bf16": {"enabled": true},
    "zero_optimization": {
      "stage": 3, "overlap_comm": true, "contiguous_gradients": true, "reduce_bucket_size": 5e8, "sub_group_size": 1e9,
      "stage3_prefetch_bucket_size": 5e7, "stage3_param_persistence_threshold": 1e5,
      "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9,
      "stage3_gather_16bit_weights_on_model_save": true,
      "offload_optimizer": {"device": "cpu", "pin_memory": true}, "offload_param": {"device": "cpu", "pin_memory": true}},
    "optimizer": {"type": "AdamW", "params": {"lr": 2e-5, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}},
    "scheduler": {"type": "WarmupLR",
                  "params": {"warmup_min_lr": 0, "warmup_max_lr": 2e-5, "warmup_num_steps": 100, "warmup_type": "linear"}},
    "wall_clock_breakdown": false})";
  const auto options = laid(json, {}, 4);
  EXPECT_EQ(options.micro_batch, 4);
  EXPECT_EQ(options.grad_accum, 4);
  EXPECT_EQ(options.stage, 3);
  EXPECT_EQ(options.dtype, DType::bf16);
  EXPECT_EQ(options.placement.params, (Shares{1, 0}));
  EXPECT_EQ(options.placement.optimizer, (Shares{1, 0}));
  EXPECT_EQ(options.optimizer.weight_decay, 0);
  EXPECT_EQ(options.schedule.lr, 2e-5);
  EXPECT_EQ(options.prefetch_bytes, 100'000'000);
  EXPECT_EQ(parse(json).unused.size(), 9u) << warning_of(parse(json));
}

TEST(DeepSpeedConfig, ZeROInfinityOnNvme) {
  const auto options = laid(R"({
    "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 8,
    "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000, "hysteresis": 2,
             "min_loss_scale": 1},
    "zero_optimization": {
      "stage": 3, "sub_group_size": 1e8,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 4, "pipeline_read": true,
                            "pipeline_write": true, "fast_init": false},
      "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 1e8,
                        "max_in_cpu": 1e9}},
    "activation_checkpointing": {"partition_activations": true, "cpu_checkpointing": true, "number_checkpoints": 24},
    "aio": {"block_size": 1048576, "queue_depth": 8, "thread_count": 1, "single_submit": false, "overlap_events": true}})");
  EXPECT_EQ(options.dtype, DType::f16);
  EXPECT_EQ(options.loss_scale.hysteresis, 2);
  EXPECT_EQ(options.grad_accum, 8);
  EXPECT_EQ(options.placement.params, (Shares{0, 1}));
  EXPECT_EQ(options.placement.optimizer, (Shares{0, 1}));
  EXPECT_EQ(options.placement.activations, Place::host);
  EXPECT_TRUE(options.activation_checkpointing);
  EXPECT_EQ(options.nvme_paths, std::vector<std::filesystem::path>{"/local_nvme"});
  EXPECT_EQ(options.piece_elements, 100'000'000);
  EXPECT_EQ(options.io.depth, 8);
}

TEST(DeepSpeedConfig, HuggingFaceWithAuto) {
  TrainOptions given = with_batch(8, 2);
  given.schedule.lr = 5e-5;
  given.optimizer.weight_decay = 0.02f;
  const auto options = laid(R"({
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16, "hysteresis": 2,
             "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                  "warmup_num_steps": "auto", "total_num_steps": "auto"}},
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true},
                          "allgather_partitions": true, "reduce_bucket_size": "auto", "sub_group_size": "auto",
                          "stage3_prefetch_bucket_size": "auto", "stage3_param_persistence_threshold": "auto"},
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto"})",
                            {"--micro-batch", "--grad-accum", "--lr", "--weight-decay"}, 2, given);
  EXPECT_EQ(options.micro_batch, 8);
  EXPECT_EQ(options.grad_accum, 2);
  EXPECT_EQ(options.schedule.lr, 5e-5);
  EXPECT_EQ(options.schedule.type, ScheduleType::linear);
  EXPECT_EQ(options.optimizer.weight_decay, 0.02f);
  EXPECT_EQ(options.clip, TrainOptions{}.clip);
  EXPECT_EQ(options.dtype, TrainOptions{}.dtype);
  EXPECT_EQ(options.stage, 2);
  EXPECT_EQ(options.placement.optimizer, (Shares{1, 0}));
  EXPECT_EQ(options.prefetch_bytes, TrainOptions{}.prefetch_bytes);
}

}  // namespace
}  // namespace zeepo
