// `zeepo train --config` and shares of states, as scripts see them.
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Finished train_with(const Arguments& given) {
  Arguments arguments{"train",
                      "--model",
                      golden("gpt2-tiny").string(),
                      "--data",
                      (golden("gpt2-tiny") / "tokens.bin").string(),
                      "--steps",
                      "3",
                      "--seq-len",
                      "16",
                      "--memory",
                      "device=64MiB,host=64MiB,nvme=64MiB",
                      "--threads",
                      "2",
                      "--log",
                      "-"};
  arguments.insert(arguments.end(), given.begin(), given.end());
  return run_program(kProgram, arguments, {});
}

// The events of a run that must succeed.
std::vector<Json> events(const Finished& finished) {
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::vector<Json> lines;
  std::istringstream stream(finished.out);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  EXPECT_EQ(lines.size(), 5u);
  return lines;
}

std::string hash_of(const Finished& finished) { return events(finished).back().at("weights_hash"); }

TEST(Config, AFileSaysWhatFlagsWould) {
  const TestDirectory directory;
  const std::string file = directory
                               .write("ds.json", R"({
    "train_batch_size": 4, "train_micro_batch_size_per_gpu": 2, "gradient_clipping": 0.5,
    "optimizer": {"type": "Adam", "params": {"lr": 0.01, "betas": [0.8, 0.9], "eps": 1e-6, "weight_decay": 0.2,
                  "adam_w_mode": false}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_num_steps": 2}},
    "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}})")
                               .string();
  const auto finished = train_with({"--config", file});
  EXPECT_EQ(finished.err.find("warning"), std::string::npos) << finished.err;
  const Arguments same{"--micro-batch", "2",    "--grad-accum",   "2",    "--clip",     "0.5",
                       "--optimizer",   "adam", "--lr",           "0.01", "--betas",    "0.8,0.9",
                       "--eps",         "1e-6", "--weight-decay", "0.2",  "--schedule", "linear",
                       "--warmup",      "2",    "--dtype",        "bf16", "--stage",    "2"};
  EXPECT_EQ(hash_of(finished), hash_of(train_with(same)));
}

TEST(Config, FlagsWinOverTheFile) {
  const TestDirectory directory;
  const std::string file =
      directory.write("ds.json", R"({"optimizer": {"type": "SGD", "params": {"lr": 0.5}}, "fp16": {"enabled": true}})")
          .string();
  const auto lines = events(train_with({"--config", file, "--optimizer", "adamw", "--lr", "0.002", "--dtype", "fp32"}));
  EXPECT_EQ(lines[0].at("dtype"), "fp32");
  EXPECT_EQ(lines[1].at("lr"), 0.002);
  EXPECT_EQ(lines.back().at("weights_hash"), hash_of(train_with({"--lr", "0.002"})));
}

TEST(Config, TextOfAFileDoesNotSteerTheTerminal) {
  const TestDirectory directory;
  const std::string file = directory
                               .write("ds.json", R"({"zero_optimization": {"stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": "\u001b[31m"}}})")
                               .string();
  const auto finished = train_with({"--config", file});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(names(finished.err, "--nvme-path \\x1b[31m: there is no such directory"));
  EXPECT_EQ(finished.err.find('\x1b'), std::string::npos) << finished.err;
}

TEST(Config, WhatNoFlagSaysReachesTheRunToo) {
  const TestDirectory directory;
  const std::string file =
      directory.write("ds.json", R"({"fp16": {"enabled": true, "loss_scale": 128}, "steps_per_print": 2})").string();
  const auto finished = train_with({"--config", file});
  for (const auto& line : events(finished))
    if (line.at("event") == "step") {
      EXPECT_EQ(line.at("loss_scale"), 128);
    }
  EXPECT_TRUE(names(finished.err, "step 2/3", "step 3/3"));
  EXPECT_EQ(finished.err.find("step 1/3"), std::string::npos) << finished.err;
}

TEST(Config, WhatIsNotActedOnIsOneWarning) {
  const TestDirectory directory;
  const std::string file =
      directory.write("ds.json", R"({"frobnicate": 1, "zero_optimization": {"overlap_comm": true}})").string();
  const auto finished = train_with({"--config", file});
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::istringstream stream(finished.err);
  int warnings = 0;
  for (std::string line; std::getline(stream, line);) {
    if (line.find("warning") == std::string::npos) continue;
    ++warnings;
    EXPECT_TRUE(names(line, file, "frobnicate", "zero_optimization.overlap_comm"));
  }
  EXPECT_EQ(warnings, 1) << finished.err;
}

TEST(Config, AWrongFileIsAUsageError) {
  const TestDirectory directory;
  const auto expect_fault = [&](const std::string& file, const auto&... named) {
    const auto finished = train_with({"--config", file});
    EXPECT_EQ(finished.code, 2) << finished.err;
    EXPECT_TRUE(finished.out.empty());
    EXPECT_TRUE(names(finished.err, "--config", named...));
  };
  expect_fault((directory.path() / "none.json").string(), "none.json");
  expect_fault("", "config");
  expect_fault(directory.write("a.json", "[1]").string(), "a.json", "object");
  expect_fault(directory.write("b.json", R"({"zero_optimization": {"stage": 7}})").string(), "b.json",
               "zero_optimization.stage", "7");
}

TEST(Shares, OfStatesLiveInEveryTierAndChangeNothing) {
  const TestDirectory directory;
  const std::string plain = hash_of(train_with({}));
  const Arguments flags{"--offload-param", "host=0.4,nvme=0.3", "--offload-optimizer",
                        "nvme=0.5",        "--nvme-path",       directory.path().string()};
  const auto summary = events(train_with(flags)).back();
  EXPECT_EQ(summary.at("weights_hash"), plain);
  EXPECT_NE(summary.at("files").get<std::string>().find("1 file under"), std::string::npos);
  const auto& peak = summary.at("ranks").at(0).at("peak_bytes");
  for (const char* tier : {"device", "host", "nvme"}) EXPECT_GT(peak.at(tier).at("params"), 0) << tier;
  for (const char* tier : {"device", "nvme"}) EXPECT_GT(peak.at(tier).at("optimizer"), 0) << tier;

  const std::string file = directory
                               .write("ds.json", R"({"zero_optimization": {"stage": 3, "sub_group_size": 1e5,
    "offload_param": {"device": "cpu", "ratio": 0.5}, "offload_optimizer": {"device": "nvme", "nvme_path": ")" +
                                                     directory.path().string() + R"("}},
    "aio": {"block_size": 65536, "queue_depth": 4}})")
                               .string();
  const auto offloaded = events(train_with({"--config", file})).back();
  EXPECT_EQ(offloaded.at("weights_hash"), plain);
  EXPECT_GT(offloaded.at("ranks").at(0).at("peak_bytes").at("host").at("params"), 0);
  EXPECT_GT(offloaded.at("ranks").at(0).at("peak_bytes").at("nvme").at("optimizer"), 0);
}

TEST(Shares, OfTheStepOnEitherSideChangeNothing) {
  const std::string plain = hash_of(train_with({}));
  for (const std::string side : {"auto", "host", "device", "0.5", "0", "1"}) {
    const auto log = events(train_with({"--offload-optimizer", "host", "--step-below", side}));
    EXPECT_EQ(log.back().at("weights_hash"), plain) << side;
    EXPECT_EQ(log.front().at("step_below").at("host_share"), side == "0.5"                     ? 0.5
                                                             : side == "device" || side == "0" ? 0
                                                                                               : 1)
        << side;
  }
}

TEST(Shares, OfTheStepThatMakeNoSenseAreNamed) {
  for (const std::string value : {"gpu", "-0.1", "1.5", "nan", "0.5x", ""}) {
    const auto finished = train_with({"--step-below", value});
    EXPECT_EQ(finished.code, 2) << value << finished.err;
    EXPECT_TRUE(names(finished.err, "--step-below"));
  }
  const auto finished = train_with({"--step-below", "0.5", "--clip", "0"});
  EXPECT_EQ(finished.code, 2) << finished.err;
  EXPECT_TRUE(names(finished.err, "--step-below 0.5", "--clip 0"));
  for (const std::vector<std::string>& where :
       {std::vector<std::string>{}, {"--offload-optimizer", "nvme", "--nvme-path", "."}}) {
    std::vector<std::string> options{"--step-below", "0.5"};
    options.insert(options.end(), where.begin(), where.end());
    const auto refused = train_with(options);
    EXPECT_EQ(refused.code, 2) << refused.err;
    EXPECT_TRUE(names(refused.err, "--step-below 0.5", "--offload-optimizer host"));
  }
  const auto in_files =
      train_with({"--step-below", "0.5", "--offload-optimizer", "host", "--offload-param", "nvme", "--nvme-path", "."});
  EXPECT_EQ(in_files.code, 2) << in_files.err;
  EXPECT_TRUE(names(in_files.err, "--step-below 0.5", "--offload-param"));
}

TEST(Shares, InFilesNeedADirectory) {
  for (const std::string option : {"--offload-param", "--offload-optimizer", "--offload-activations"}) {
    const Finished none = train_with({option, "nvme"});
    EXPECT_EQ(none.code, 2) << none.err;
    EXPECT_TRUE(names(none.err, option, "--nvme-path DIR"));
    const Finished missing = train_with({option, "nvme", "--nvme-path", "/nowhere/at/all"});
    EXPECT_EQ(missing.code, 1) << missing.err;
    EXPECT_TRUE(names(missing.err, "--nvme-path /nowhere/at/all", "no such directory"));
  }
}

TEST(Shares, ThatMakeNoSenseAreNamed) {
  for (const std::string option : {"--offload-param", "--offload-optimizer"})
    for (const std::string value : {"host=-0.1", "host=1.5", "host=0.7,nvme=0.4", "host=0.1,host=0.2", "device=0.5",
                                    "host=", "host=x", "host=nan", "host=0.5,", "host=0.5;nvme=0.5", "ram"}) {
      const auto finished = train_with({option, value});
      EXPECT_EQ(finished.code, 2) << value << finished.err;
      EXPECT_TRUE(names(finished.err, fmt::format("{} {}", option, value)));
    }
}

}  // namespace
}  // namespace zeepo
