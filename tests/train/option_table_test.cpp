#include "zeepo/train/option_table.h"
#include "tests/support/places.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/run_record.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/comm/wire_type.h"
#include "zeepo/train/deepspeed_config.h"
#include "zeepo/train/option_values.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

// For every option a value that is not its default. A new option needs one here.
const OptionTexts& other_values() {
  static const OptionTexts values{{"--model", "other"},
                                  {"--from-scratch", "true"},
                                  {"--data", "other.bin"},
                                  {"--seq-len", "24"},
                                  {"--micro-batch", "3"},
                                  {"--grad-accum", "4"},
                                  {"--steps", "7"},
                                  {"--no-shuffle", "true"},
                                  {"--seed", "18446744073709551615"},
                                  {"--optimizer", "sgd"},
                                  {"--moments", "8bit"},
                                  {"--lr", "0.0123456789"},
                                  {"--betas", "0.8,0.999"},
                                  {"--eps", "1e-06"},
                                  {"--momentum", "0.3"},
                                  {"--weight-decay", "0.01"},
                                  {"--decay", "matrices"},
                                  {"--clip", "0.1"},
                                  {"--freeze", "*norm*,*.0.*"},
                                  {"--eval-data", "other.txt"},
                                  {"--eval-every", "5"},
                                  {"--eval-samples", "6"},
                                  {"--on-nan", "skip"},
                                  {"--schedule", "linear"},
                                  {"--warmup", "5"},
                                  {"--lr-end", "1e-05"},
                                  {"--dropout", "0.25"},
                                  {"--dtype", "bf16"},
                                  {"--matmul-dtype", "fp8"},
                                  {"--sum-order", "local"},
                                  {"--reduce", "last"},
                                  {"--blocks-per-unit", "2"},
                                  {"--tile-linear", "2"},
                                  {"--device", "cuda"},
                                  {"--threads", "3"},
                                  {"--stage", "3"},
                                  {"--comm", "nccl"},
                                  {"--gather-dtype", "int8"},
                                  {"--reduce-dtype", "int4"},
                                  {"--reduce-feedback", "true"},
                                  {"--node-copy", "true"},
                                  {"--node-size", "4"},
                                  {"--gather-route", "ring"},
                                  {"--balance", "1,0.5"},
                                  {"--timeout", "90.5"},
                                  {"--no-communication", "true"},
                                  {"--simulate-link", "ranks=1GiB/s,host-device=500MiB/s,nvme=1000/s"},
                                  {"--memory", "device=64MiB,host=96MiB,nvme=1000000"},
                                  {"--placement", "auto"},
                                  {"--offload-param", "host=0.3,nvme=0.1"},
                                  {"--offload-optimizer", "host"},
                                  {"--step-below", "0.4"},
                                  {"--activation-checkpointing", "true"},
                                  {"--batch-invariant", "true"},
                                  {"--offload-activations", "nvme"},
                                  {"--cache-policy", "lru"},
                                  {"--nvme-path", "/a,/b"},
                                  {"--prefetch", "3MiB"},
                                  {"--no-tune", "false"},
                                  {"--log", "-"},
                                  {"--tensorboard", "runs"},
                                  {"--csv", "run.csv"},
                                  {"--prometheus", "run.prom"},
                                  {"--dashboard", "[::1]:8080"},
                                  {"--trace", "trace.json"},
                                  {"--output", "trained"},
                                  {"--output-fallback", "elsewhere"},
                                  {"--output-retry", "7.5"},
                                  {"--output-dtype", "fp16"},
                                  {"--checkpoint-dir", "checkpoints"},
                                  {"--checkpoint-every", "3"},
                                  {"--checkpoint-keep", "4"},
                                  {"--checkpoint-memory", "3MiB"},
                                  {"--stop-grace", "20"},
                                  {"--resume", "checkpoints/step-00000003"},
                                  {"--allow-changes", "true"},
                                  {"--elastic", "true"},
                                  {"--hosts", "node1,node2:4"},
                                  {"--ranks-per-host", "3"},
                                  {"scheduler.params.warmup_min_lr", "1e-06"},
                                  {"scheduler.params.warmup_type", "log"},
                                  {"scheduler.params.total_num_steps", "100"},
                                  {"fp16.initial_scale_power", "12"},
                                  {"fp16.loss_scale", "128"},
                                  {"fp16.min_loss_scale", "4"},
                                  {"fp16.loss_scale_window", "500"},
                                  {"fp16.hysteresis", "2"},
                                  {"zero_optimization.sub_group_size", "131072"},
                                  {"aio.block_size", "8192"},
                                  {"aio.queue_depth", "8"},
                                  {"steps_per_print", "3"}};
  return values;
}

std::string other_value(const TrainOption& option) {
  const auto found = other_values().find(option.name);
  if (found == other_values().end()) ADD_FAILURE() << option.name << " has no value in other_values()";
  return found == other_values().end() ? "" : found->second;
}

TrainOptions with(const OptionTexts& texts, TrainOptions options = {}) {
  for (const auto& [name, text] : texts) assign(options, name, text);
  return options;
}

TEST(OptionTable, DescribesEveryOptionOnce) {
  std::set<std::string> names, keys;
  for (const TrainOption& option : option_table()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_EQ(find_option(option.name), &option);
    EXPECT_TRUE(option.parse && option.text) << option.name;
    if (option.on_command_line()) {
      EXPECT_FALSE(option.help.empty()) << option.name;
      EXPECT_NE(option.group, OptionGroup::file) << option.name;
      EXPECT_TRUE(option.is_flag || !option.type.empty()) << option.name;
    } else {
      EXPECT_EQ(option.group, OptionGroup::file) << option.name;
      EXPECT_EQ(find_option_by_key(option.name), &option) << "it is named by its key";
    }
    for (const std::string& key : option.deepspeed) {
      EXPECT_TRUE(keys.insert(key).second) << key;
      EXPECT_EQ(find_option_by_key(key), &option);
      EXPECT_TRUE(option.from_json) << key;
    }
  }
  for (const auto& [name, text] : other_values()) EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(find_option("--frobnicate"), nullptr);
  EXPECT_EQ(find_option_by_key("frobnicate"), nullptr);
}

TEST(OptionTable, EveryTextIsReadBackToTheSameValue) {
  for (const TrainOption& option : option_table()) {
    const std::string other = other_value(option);
    const TrainOptions set = with({{option.name, other}});
    EXPECT_EQ(option.text(set), other) << option.name;
    EXPECT_NE(option.text(TrainOptions{}), other) << option.name;
    // Nothing else changes; a fixed loss scale has no power that it starts from.
    for (const OptionDifference& difference : differences(TrainOptions{}, set)) {
      const bool of_fixed_scale = option.name == "fp16.loss_scale" && difference.option->name.starts_with("fp16.");
      EXPECT_TRUE(difference.option == &option || of_fixed_scale) << option.name << " " << difference.option->name;
    }
    const std::string standard = option.text(TrainOptions{});
    if (standard.empty()) continue;
    EXPECT_EQ(option.text(with({{option.name, standard}}, set)), standard) << option.name;
  }
}

TEST(OptionTable, FieldsComeBackToTheBit) {
  TrainOptions odd;
  odd.schedule.lr = 0.1 + 0.2;
  odd.optimizer.beta1 = std::nextafter(0.9f, 0.0f);
  odd.optimizer.beta2 = 1.0f / 3;
  odd.clip = 1e-40f;
  odd.dropout = 0.1f;
  odd.placement.params = {1.0 / 3, 0.1};
  odd.host_step_share = 1.0 / 7;
  odd.prefetch_bytes = (std::int64_t{1} << 40) + 1;
  odd.device_bytes = 1025;
  TrainOptions back;
  for (const auto& difference : differences(back, odd)) difference.option->parse(back, difference.after);
  EXPECT_EQ(back.schedule.lr, odd.schedule.lr);
  EXPECT_EQ(back.optimizer.beta1, odd.optimizer.beta1);
  EXPECT_EQ(back.optimizer.beta2, odd.optimizer.beta2);
  EXPECT_EQ(back.clip, odd.clip);
  EXPECT_EQ(back.dropout, odd.dropout);
  EXPECT_EQ(back.placement.params, odd.placement.params);
  EXPECT_EQ(back.host_step_share, odd.host_step_share);
  EXPECT_EQ(back.prefetch_bytes, odd.prefetch_bytes);
  EXPECT_EQ(back.device_bytes, odd.device_bytes);
}

TEST(OptionTable, TextsThatMakeNoSenseAreNamed) {
  for (const auto& [name, text] :
       std::initializer_list<std::pair<const char*, const char*>>{{"--steps", "9223372036854775808"},
                                                                  {"--steps", "-1"},
                                                                  {"--steps", "1e3"},
                                                                  {"--steps", "3x"},
                                                                  {"--seed", "-1"},
                                                                  {"--seed", "18446744073709551616"},
                                                                  {"--threads", "0"},
                                                                  {"--threads", "1025"},
                                                                  {"--micro-batch", "1048577"},
                                                                  {"--stage", "4"},
                                                                  {"--stage", "-1"},
                                                                  {"--lr", "fast"},
                                                                  {"--lr", "nan"},
                                                                  {"--lr", "inf"},
                                                                  {"--lr", "1e999"},
                                                                  {"--clip", "1e39"},
                                                                  {"--betas", "0.9"},
                                                                  {"--betas", "0.9,1"},
                                                                  {"--betas", "0.9,0.95,0.99"},
                                                                  {"--optimizer", "lion"},
                                                                  {"--memory", "device=4GiB,device=5GiB"},
                                                                  {"--memory", "gpu=4GiB"},
                                                                  {"--prefetch", "many"},
                                                                  {"--simulate-link", "nvme=500MB"},
                                                                  {"--offload-activations", "host=0.5"},
                                                                  {"--nvme-path", "a,,b"},
                                                                  {"--sum-order", "fast"},
                                                                  {"--gather-dtype", "int4"},
                                                                  {"--reduce-dtype", "fp8"},
                                                                  {"--node-size", "0"},
                                                                  {"--gather-route", "tree"},
                                                                  {"--blocks-per-unit", "0"},
                                                                  {"--dashboard", "65536"},
                                                                  {"--dashboard", "-1"},
                                                                  {"--dashboard", "page"},
                                                                  {"--dashboard", ":80"},
                                                                  {"--dashboard", "::1:80"},
                                                                  {"--dashboard", "localhost:"},
                                                                  {"aio.block_size", "5000"},
                                                                  {"fp16.hysteresis", "0"}}) {
    TrainOptions options;
    EXPECT_THROW(assign(options, name, text), UsageError) << name << " " << text;
    const std::string error = error_text([&options, option = name, value = text] { assign(options, option, value); });
    EXPECT_TRUE(names(error, "train: ", name)) << text;
  }
  TrainOptions options;
  for (const TrainOption& option : option_table())
    EXPECT_TRUE(names(error_text([&] { assign(options, option.name, ""); }), option.name, "\"\""));
  EXPECT_TRUE(names(error_text([&] { assign(options, "--frobnicate", "1"); }), "--frobnicate"));
  assign(options, "--weight-decay", "1e-60");  // too small for fp32
  EXPECT_EQ(options.optimizer.weight_decay, 0);
}

// kWireFormats is the one list of them.
TEST(OptionTable, EveryWireFormatIsAChoice) {
  for (const WireFormat& format : kWireFormats) {
    const std::string name(format.name);
    TrainOptions options;
    assign(options, "--reduce-dtype", name);
    EXPECT_EQ(options.wire.reduce, format.type);
    if (format.for_weights) {
      assign(options, "--gather-dtype", name);
      EXPECT_EQ(options.wire.gather, format.type);
    } else {
      EXPECT_THROW(assign(options, "--gather-dtype", name), UsageError) << name;
    }
    EXPECT_TRUE(names(find_option("--reduce-dtype")->help, name));
    EXPECT_EQ(find_option("--gather-dtype")->help.find(name) != std::string::npos, format.for_weights) << name;
  }
  EXPECT_EQ(names_of(choices_of(kWireFormats)), "same, int8 or int4");
}

TEST(OptionTable, RanksAgreeOnWhatTheResultAndCollectivesDependOn) {
  for (const TrainOption& option : option_table())
    EXPECT_TRUE(option.effect == Effect::execution || option.ranks != Ranks::may_differ) << option.name;
  // How large collectives are, how many there are, and in which order.
  for (const char* name : {"--seq-len",
                           "--micro-batch",
                           "--grad-accum",
                           "--steps",
                           "--optimizer",
                           "--moments",
                           "--clip",
                           "--dtype",
                           "--sum-order",
                           "--reduce",
                           "--blocks-per-unit",
                           "--tile-linear",
                           "--stage",
                           "--comm",
                           "--gather-dtype",
                           "--reduce-dtype",
                           "--reduce-feedback",
                           "--node-copy",
                           "--node-size",
                           "--gather-route",
                           "--balance",
                           "--placement",
                           "--offload-param",
                           "--offload-optimizer",
                           "--offload-activations",
                           "--activation-checkpointing",
                           "--step-below",
                           "--cache-policy",
                           "--prefetch",
                           "--no-tune",
                           "--output-dtype",
                           "zero_optimization.sub_group_size"})
    EXPECT_EQ(find_option(name)->ranks, Ranks::agree) << name;
  for (const char* name : {"--trace", "--output"}) EXPECT_EQ(find_option(name)->ranks, Ranks::agree_if_given) << name;

  const auto standard = agreed_values({});
  for (const TrainOption& option : option_table()) {
    const auto changed = agreed_values(with({{option.name, other_value(option)}}));
    ASSERT_EQ(changed.size(), standard.size());
    bool seen = false;
    for (std::size_t i = 0; i < changed.size(); ++i)
      seen = seen || (changed[i].first == option.name && changed[i].second != standard[i].second);
    EXPECT_EQ(seen, option.ranks == Ranks::agree || option.ranks == Ranks::agree_if_given) << option.name;
  }
}

TrainOptions tiny_options() {
  TrainOptions options;
  options.model = golden("llama-tiny");
  options.data = golden("llama-tiny") / "tokens.bin";
  options.seq_len = 16;
  options.micro_batch = options.grad_accum = 2;
  options.steps = 3;
  options.threads = 1;
  options.device_bytes = options.host_bytes = options.nvme_bytes = 64 << 20;
  return options;
}

TEST(OptionTable, PiecesOfAnotherSizeAreFoundBeforeAnyCollective) {
  const auto differ = [](const auto& change) {
    std::vector<std::string> texts(2);
    ThreadsWorld world(2);
    EXPECT_THROW(run(world,
                     [&](Communicator& communicator) {
                       TrainOptions options = tiny_options();
                       if (communicator.rank() == 1) change(options);
                       auto& text = texts[static_cast<std::size_t>(communicator.rank())];
                       text = error_text([&] { Trainer(options, communicator); });
                       throw Error("{}", text);
                     }),
                 Error);
    return texts[0];
  };
  EXPECT_TRUE(names(differ([](TrainOptions& o) { o.piece_elements = 131072; }), "zero_optimization.sub_group_size"));
}

// Buffers are sized for the least of all ranks' budgets.
TEST(OptionTable, BudgetsOfRanksMayDiffer) {
  ThreadsWorld world(2);
  testing::internal::CaptureStderr();
  EXPECT_NO_THROW(run(world, [](Communicator& communicator) {
    TrainOptions options = tiny_options();
    options.stage = 1;
    options.placement.optimizer = {.host = 1};
    if (communicator.rank() == 1) options.host_bytes = 16 << 20;
    Trainer(options, communicator).run();
  }));
  testing::internal::GetCapturedStderr();
}

// What the table calls execution changes no bit of the losses, the norms and the weights.
TEST(OptionTable, OptionsOfExecutionChangeNoBit) {
  const TestDirectory directory;
  const std::string here = directory.path().string();
  // What an option needs beside it, or another value than that of other_values().
  const std::map<std::string, OptionTexts> settings{
      {"--comm", {{"--comm", "mpi"}}},
      {"--node-copy", {{"--stage", "3"}, {"--node-copy", "true"}}},
      {"--offload-param", {{"--offload-param", "host=0.3,nvme=0.3"}, {"--nvme-path", here}}},
      {"--step-below", {{"--offload-optimizer", "host"}, {"--step-below", "0.4"}}},
      {"--offload-activations", {{"--offload-activations", "host"}}},
      {"--cache-policy", {{"--offload-param", "host=0.5"}, {"--cache-policy", "lru"}}},
      {"--nvme-path", {{"--offload-optimizer", "nvme"}, {"--nvme-path", here}}},
      {"--placement", {{"--placement", "auto"}, {"--memory", "device=2MiB,host=64MiB"}}},
      {"--memory", {{"--memory", "device=64MiB,host=96MiB"}}},
      {"--simulate-link", {{"--simulate-link", "host-device=1GiB/s"}, {"--offload-optimizer", "host"}}},
      {"--log", {}},  // all of them have one
      {"--tensorboard", {{"--tensorboard", here + "/events"}}},
      {"--csv", {{"--csv", here + "/run.csv"}}},
      {"--prometheus", {{"--prometheus", here + "/run.prom"}}},
      {"--dashboard", {{"--dashboard", "0"}}},
      {"--trace", {{"--trace", here + "/trace.json"}}},
      {"--output", {{"--output", here + "/trained"}}},
      {"--output-fallback", {{"--output", here + "/trained"}, {"--output-fallback", here + "/elsewhere"}}},
      {"--output-dtype", {{"--output", here + "/trained"}, {"--output-dtype", "bf16"}}},
      {"--checkpoint-dir", {{"--checkpoint-dir", here + "/saved"}}},
      {"--checkpoint-every", {{"--checkpoint-dir", here + "/saved"}, {"--checkpoint-every", "1"}}},
      {"--checkpoint-keep", {{"--checkpoint-dir", here + "/saved"}, {"--checkpoint-keep", "1"}}},
      {"--checkpoint-memory", {{"--checkpoint-dir", here + "/saved"}, {"--checkpoint-memory", "1"}}},
      {"--eval-data", {{"--eval-data", (golden("llama-tiny") / "tokens.bin").string()}, {"--eval-samples", "5"}}},
      {"--eval-every",
       {{"--eval-data", (golden("llama-tiny") / "tokens.bin").string()},
        {"--eval-samples", "5"},
        {"--eval-every", "1"}}},
      {"--eval-samples", {{"--eval-data", (golden("llama-tiny") / "tokens.bin").string()}, {"--eval-samples", "3"}}},
      {"--resume", {{"--checkpoint-dir", here + "/empty"}, {"--resume", "newest"}}},
      {"--elastic", {{"--checkpoint-dir", here + "/elastic"}, {"--elastic", "true"}}},
      {"--hosts", {{"--checkpoint-dir", here + "/elastic"}, {"--elastic", "true"}, {"--hosts", "localhost"}}},
      {"zero_optimization.sub_group_size",
       {{"--offload-optimizer", "host"}, {"zero_optimization.sub_group_size", "131072"}}},
      {"aio.block_size", {{"--offload-optimizer", "nvme"}, {"--nvme-path", here}, {"aio.block_size", "8192"}}},
      {"aio.queue_depth", {{"--offload-optimizer", "nvme"}, {"--nvme-path", here}, {"aio.queue_depth", "2"}}},
  };
  const auto record = [&](const OptionTexts& texts) {
    TrainOptions options = with(texts, tiny_options());
    options.log = (directory.path() / "log.jsonl").string();
    std::filesystem::remove(options.log);
    testing::internal::CaptureStderr();
    Trainer(options).run();
    testing::internal::GetCapturedStderr();
    return read_record(options.log);
  };
  const RunRecord plain = record({});
  for (const TrainOption& option : option_table()) {
    if (option.effect != Effect::execution) continue;
    const auto found = settings.find(option.name);
    const RunRecord run =
        record(found != settings.end() ? found->second : OptionTexts{{option.name, other_value(option)}});
    EXPECT_EQ(run.losses, plain.losses) << option.name;
    EXPECT_EQ(run.norms, plain.norms) << option.name;
    EXPECT_EQ(run.hash, plain.hash) << option.name;
  }
  EXPECT_NE(record({{"--lr", "0.1"}}).hash, plain.hash);
}

// What would change bits with the hosts.
TEST(OptionTable, ElasticRunsRefuseSumsThatDependOnTheRanks) {
  const OptionTexts elastic{{"--elastic", "true"}, {"--checkpoint-dir", "saved"}, {"--stage", "1"}};
  check(with(elastic, tiny_options()));
  const std::vector<std::pair<OptionTexts, std::string>> refused{
      {{{"--reduce-dtype", "int8"}}, "not with --reduce-dtype int8"},
      {{{"--reduce-dtype", "int4"}, {"--reduce-feedback", "true"}}, "not with --reduce-dtype int4"},
      {{{"--gather-dtype", "int8"}}, "not with --gather-dtype int8"},
      {{{"--balance", "auto"}}, "not with --balance"},
      {{{"--reduce", "last"}}, "with --reduce each"},
      {{{"--sum-order", "local"}}, "with --sum-order global"}};
  for (const auto& [texts, way_out] : refused) {
    const TrainOptions options = with(texts, with(elastic, tiny_options()));
    EXPECT_TRUE(names(error_text([&] { check(options); }), "--elastic", way_out));
  }
}

// {"a": {"b": value}} for "a.b", beside what its object cannot do without.
nlohmann::json object_with(const std::string& key, const nlohmann::json& value) {
  nlohmann::json object;
  if (key.starts_with("optimizer.")) object["optimizer"]["type"] = "AdamW";
  if (key.starts_with("scheduler.")) object["scheduler"]["type"] = "WarmupDecayLR";
  nlohmann::json* at = &object;
  std::size_t begin = 0;
  for (std::size_t dot = key.find('.'); dot != std::string::npos; begin = dot + 1, dot = key.find('.', begin))
    at = &(*at)[key.substr(begin, dot - begin)];
  (*at)[key.substr(begin)] = value;
  return object;
}

TEST(OptionTable, EveryKeyOfDeepSpeedSetsItsOption) {
  const std::map<std::string, nlohmann::json> spelt{{"optimizer.type", "SGD"},
                                                    {"optimizer.params.betas", {0.8, 0.999}},
                                                    {"scheduler.type", "WarmupDecayLR"},
                                                    {"scheduler.params.warmup_type", "log"}};
  for (const TrainOption& option : option_table())
    for (const std::string& key : option.deepspeed) {
      const std::string other = other_value(option);
      const auto found = spelt.find(key);
      const nlohmann::json json = object_with(key, found != spelt.end() ? found->second : nlohmann::json::parse(other));
      const DeepSpeedConfig config = parse_deepspeed_config(json.dump(), "ds.json");
      EXPECT_TRUE(config.unused.empty()) << key << ": " << warning_of(config);
      TrainOptions laid;
      apply(config, {}, 1, laid);
      EXPECT_EQ(option.text(laid), other) << key;
      TrainOptions flagged;  // the flag wins
      apply(config, {option.name}, 1, flagged);
      EXPECT_EQ(option.text(flagged), option.text(TrainOptions{})) << key;
    }
}

TEST(OptionTable, TheDocsNameEveryKeyOfDeepSpeed) {
  const std::string text =
      read_text(std::filesystem::path(kTestData).parent_path().parent_path() / "docs" / "deepspeed.md");
  for (const TrainOption& option : option_table())
    for (const auto* keys : {&option.deepspeed, &option.deepspeed_also})
      for (const std::string& key : *keys) EXPECT_TRUE(names(text, key.substr(key.rfind('.') + 1))) << key;
}

TEST(OptionTable, DifferencesTellWhatChangesTheResult) {
  const auto found = differences({}, with({{"--lr", "0.5"}, {"--stage", "2"}}));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].option->name, "--lr");
  EXPECT_EQ(found[0].option->effect, Effect::result);
  EXPECT_EQ(found[0].before, "0.001");
  EXPECT_EQ(found[0].after, "0.5");
  EXPECT_EQ(found[1].option->name, "--stage");
  EXPECT_EQ(found[1].option->effect, Effect::execution);
}

}  // namespace
}  // namespace zeepo
