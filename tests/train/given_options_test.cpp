#include "zeepo/train/given_options.h"

#include "tests/support/errors.h"
#include "zeepo/train/option_values.h"

namespace zeepo {
namespace {

TrainOptions made(OptionTexts texts, const std::string& json = "{}") {
  texts.emplace("--device", "cpu");
  const DeepSpeedConfig config = parse_deepspeed_config(json, "ds.json");
  return make_options(texts, &config, 1).options;
}

std::string fault(OptionTexts texts) {
  texts.emplace("--device", "cpu");
  return error_text([&] { make_options(texts, nullptr, 1); });
}

TEST(GivenOptions, DefaultsAreThoseOfTheMachine) {
  const TrainOptions options = make_options({}, nullptr, 1).options;
  EXPECT_EQ(options.backend, default_backend());
  EXPECT_EQ(options.dtype, default_dtype(default_backend()));
  EXPECT_TRUE(options.tune.prefetch && options.tune.pieces && options.tune.host_share);
  EXPECT_FALSE(options.choose.any());
  EXPECT_EQ(made({}).dtype, DType::f32);
  EXPECT_EQ(made({{"--dtype", "fp16"}}).dtype, DType::f16);
  EXPECT_EQ(made({}, R"({"bf16": {"enabled": true}})").dtype, DType::bf16);
  EXPECT_EQ(made({{"--dtype", "fp16"}}, R"({"bf16": {"enabled": true}})").dtype, DType::f16);
}

TEST(GivenOptions, WhatIsFixedIsNeitherTunedNorChosen) {
  TrainOptions options = made({{"--placement", "auto"}});
  EXPECT_TRUE(options.choose.params && options.choose.optimizer && options.choose.activations &&
              options.choose.prefetch);
  options = made({{"--placement", "auto"}, {"--offload-param", "none"}, {"--prefetch", "256MiB"}});
  EXPECT_FALSE(options.choose.params);
  EXPECT_FALSE(options.choose.prefetch);
  EXPECT_FALSE(options.tune.prefetch);
  EXPECT_TRUE(options.tune.pieces);
  EXPECT_TRUE(options.choose.optimizer && options.choose.activations);
  options = made({{"--placement", "auto"}},
                 R"({"zero_optimization": {"stage3_prefetch_bucket_size": 5e6, "offload_optimizer": {"device": "cpu"}},
                     "activation_checkpointing": {"cpu_checkpointing": true}})");
  EXPECT_TRUE(options.choose.params);
  EXPECT_FALSE(options.choose.optimizer || options.choose.activations || options.choose.prefetch);
  EXPECT_FALSE(options.tune.prefetch);
  options = made({{"--no-tune", "true"}});
  EXPECT_FALSE(options.tune.prefetch || options.tune.pieces || options.tune.host_share);
}

TEST(GivenOptions, WhatFollowsIsSaid) {
  const auto notes = [](OptionTexts texts, int ranks) {
    texts.emplace("--device", "cpu");
    return fmt::format("{}", fmt::join(make_options(texts, nullptr, ranks).notes, "\n"));
  };
  const GivenOptions given = make_options({{"--device", "cpu"}, {"--offload-activations", "host"}}, nullptr, 1);
  EXPECT_TRUE(given.options.activation_checkpointing);
  ASSERT_EQ(given.notes.size(), 1u);
  EXPECT_TRUE(names(given.notes[0], "--offload-activations host", "--activation-checkpointing"));
  EXPECT_EQ(notes({{"--offload-activations", "host"}, {"--activation-checkpointing", "true"}}, 1), "");
  EXPECT_TRUE(names(notes({{"--sum-order", "local"}}, 3), "--sum-order local", "3 ranks"));
  EXPECT_EQ(notes({{"--sum-order", "local"}}, 1), "");
  EXPECT_TRUE(names(notes({{"--clip", "0"}}, 3), "--clip 0", "--stage 0", "3 ranks"));
  EXPECT_EQ(notes({{"--clip", "0"}}, 1), "");
  EXPECT_EQ(notes({{"--clip", "0"}, {"--stage", "1"}}, 3), "");
}

TEST(GivenOptions, ThatExcludeEachOtherAreNamed) {
  EXPECT_TRUE(names(fault({{"--frobnicate", "1"}}), "--frobnicate"));
  EXPECT_TRUE(names(fault({{"--reduce", "last"}, {"--stage", "2"}}), "--reduce last", "--stage"));
  EXPECT_TRUE(names(fault({{"--comm", "nccl"}}), "--comm nccl", "--device cuda"));
  EXPECT_TRUE(names(fault({{"--moments", "8bit"}, {"--optimizer", "sgd"}}), "--moments 8bit"));
  EXPECT_TRUE(names(fault({{"--sum-order", "local"}, {"--reduce", "last"}}), "--sum-order local", "--reduce each"));
  for (const char* where : {"host", "host=0.5", "nvme"})
    EXPECT_TRUE(names(fault({{"--sum-order", "local"}, {"--offload-optimizer", where}}), "--sum-order local",
                      std::string("--offload-optimizer ") + where, "--step-below device", "--sum-order global"));
  EXPECT_TRUE(names(fault({{"--sum-order", "local"}, {"--placement", "auto"}}), "--sum-order local", "--placement auto",
                    "--step-below device"));
  EXPECT_EQ(made({{"--sum-order", "local"}}).sum_order, SumOrder::local);
  (void)made({{"--sum-order", "local"}, {"--offload-optimizer", "host"}, {"--step-below", "device"}});
}

TEST(GivenOptions, TokensOfAStepAreCountable) {
  EXPECT_TRUE(names(fault({{"--seq-len", "16777216"}, {"--micro-batch", "1048576"}, {"--grad-accum", "1048576"}}),
                    "--seq-len 16777216", "--micro-batch 1048576", "--grad-accum 1048576", "at most"));
  EXPECT_TRUE(names(fault({{"--seq-len", "1073741824"}, {"--micro-batch", "8193"}}), "--micro-batch 8193"));
  (void)made({{"--seq-len", "1073741824"}, {"--micro-batch", "8192"}});
  (void)made({{"--micro-batch", "1048576"}, {"--grad-accum", "1048576"}});
}

}  // namespace
}  // namespace zeepo
