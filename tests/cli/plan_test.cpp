// `zeepo plan` as scripts see it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/plan/paper_tables.h"
#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/subprocess.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Finished plan(Arguments arguments) {
  arguments.insert(arguments.begin(), "plan");
  return run_program(kProgram, arguments, {});
}

Json planned(Arguments arguments) {
  arguments.emplace_back("--json");
  const Finished finished = plan(arguments);
  EXPECT_EQ(finished.code, 0) << finished.err;
  EXPECT_EQ(finished.err, "");
  return Json::parse(finished.out);
}

// Plans go by what `zeepo probe` has kept here, and by nothing that the developer has kept.
class Plan : public testing::Test {
 protected:
  Plan() {
    if (const char* value = std::getenv(kVariable)) before_ = value;
    ::setenv(kVariable, cache_.path().c_str(), 1);
  }
  ~Plan() override {
    if (before_.empty())
      ::unsetenv(kVariable);
    else
      ::setenv(kVariable, before_.c_str(), 1);
  }

 private:
  static constexpr const char* kVariable = "XDG_CACHE_HOME";
  TestDirectory cache_;
  std::string before_;
};

TEST_F(Plan, GivesTheExampleOfZero) {
  const Json json = planned({"--params", "7.5e9", "--ranks", "64"});
  EXPECT_EQ(json.at("params"), 7'500'000'000);
  const std::vector<std::int64_t> bytes{120'000'000'000, 31'406'250'000, 16'640'625'000, 1'875'000'000};
  for (std::size_t stage = 0; stage < bytes.size(); ++stage) {
    EXPECT_EQ(json.at("stages").at(stage).at("bytes_per_rank"), bytes[stage]);
    EXPECT_EQ(json.at("stages").at(stage).at("comm_elements_per_step"), stage == 3 ? 22'500'000'000 : 15'000'000'000);
  }
  EXPECT_EQ(json.at("recommended").at("by"), "nothing");
  EXPECT_EQ(planned({"--params", "7.5B", "--ranks", "64", "--memory", "device=16GB"}).at("recommended").at("stage"), 3);
}

// One for each point of a sweep.
std::vector<Json> swept(Arguments arguments) {
  arguments.emplace_back("--json");
  const Finished finished = plan(arguments);
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::vector<Json> plans;
  std::istringstream lines(finished.out);
  for (std::string line; std::getline(lines, line);) plans.push_back(Json::parse(line));
  return plans;
}

TEST_F(Plan, GivesTheTableOfZero) {
  const std::vector<Json> plans = swept({"--sweep", "ranks=1,4,16,64,256,1024", "--sweep", "params=7.5e9,128B,1e12"});
  ASSERT_EQ(plans.size(), zero_table().size() * kZeroModels.size());
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const ZeroRow& row = zero_table()[i / kZeroModels.size()];
    const std::size_t model = i % kZeroModels.size();
    EXPECT_EQ(plans[i].at("ranks"), row.ranks);
    EXPECT_EQ(plans[i].at("params"), kZeroModels[model]);
    for (std::size_t stage = 1; stage <= 3; ++stage) {
      const double bytes = plans[i].at("stages").at(stage).at("bytes_per_rank").get<double>();
      EXPECT_TRUE(is_printed(bytes / 1e9, row, 3 * model + stage - 1))
          << kZeroModels[model] << " on " << row.ranks << " ranks, stage " << stage << ": " << bytes;
    }
  }
}

TEST_F(Plan, GivesTheTableOfZeroInfinity) {
  const double tebi = 0x1p40, gibi = 0x1p30;
  for (const InfinityRow& row : infinity_table()) {
    SCOPED_TRACE(row.trillions);
    const std::vector<Json> plans =
        swept({"--layers", fmt::format("{}", row.layers), "--hidden", fmt::format("{}", row.hidden), "--heads",
               fmt::format("{}", row.heads), "--vocab", "50257", "--ranks", "16", "--gpus-per-node", "16",
               "--bytes-per-param", "20", "--seq-len", "1024", "--sweep", "micro-batch=2,4"});
    ASSERT_EQ(plans.size(), 2u);
    const Json &two = plans[0], &four = plans[1];
    const auto near = [](const Json& value, double unit, double printed) {
      EXPECT_NEAR(value.get<double>() / unit, printed, kInfinityDigit);
    };
    near(four.at("params"), 1e12, row.trillions);
    near(four.at("stages").at(0).at("bytes_per_rank"), tebi, row.states);
    near(four.at("activations").at("full_bytes_per_node"), tebi, row.activations);
    near(two.at("activations").at("checkpoint_bytes_per_node"), tebi, row.checkpoints);
    near(four.at("working").at("model_state_bytes"), gibi, row.state_working);
    near(four.at("working").at("activation_bytes"), gibi, row.activation_working);
  }
}

TEST_F(Plan, SweepsOverSeveralOptions) {
  const Finished csv = plan({"--layers", "2", "--hidden", "64", "--heads", "4", "--sweep", "hidden=64..256", "--sweep",
                             "ranks=1,2", "--sweep", "bandwidth=1,10.5"});
  EXPECT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 1 + 3 * 2 * 2);
  EXPECT_TRUE(names(csv.out, "hidden,ranks,bandwidth,params,", "\n64,1,1,98304,1572864,", "\n256,2,10.5,1572864,"));
  const Finished json = plan({"--params", "1e9", "--sweep", "ranks=1,4", "--json"});
  std::istringstream lines(json.out);
  std::vector<std::int64_t> bytes;
  for (std::string line; std::getline(lines, line);)
    bytes.push_back(Json::parse(line).at("stages").at(3).at("bytes_per_rank"));
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{16'000'000'000, 4'000'000'000}));
}

// Each row of a model, or of a machine, is what a plan of these options recommends.
TEST_F(Plan, SweepsOverExactPlans) {
  const Arguments asked{"--layers",  "2",       "--hidden", "256",     "--heads",    "4",       "--hardware",
                        "dgx2-v100", "--dtype", "fp16",     "--sweep", "ranks=2..8", "--sweep", "micro-batch=1,4"};
  const Finished csv = plan(asked);
  EXPECT_EQ(csv.code, 0) << csv.err;
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 1 + 3 * 2);
  EXPECT_TRUE(csv.out.starts_with("ranks,micro-batch,params,fits,recommended,device_bytes,")) << csv.out;
  std::vector<Json> lines = swept(asked);
  ASSERT_EQ(lines.size(), 6u);
  const Json alone = planned({"--layers", "2", "--hidden", "256", "--heads", "4", "--ranks", "8", "--hardware",
                              "dgx2-v100", "--dtype", "fp16", "--micro-batch", "4"});
  EXPECT_EQ(lines.back().at("recommended"), alone.at("recommended"));
  EXPECT_EQ(lines.back().at("machine"), alone.at("machine"));
  EXPECT_TRUE(names(csv.out, fmt::format("\n8,4,{},true,\"--stage 2", alone.at("params").get<std::int64_t>()),
                    fmt::format(",{},", alone.at("recommended").at("arena_bytes").at("device").get<std::int64_t>())));
  for (const Json& line : lines) EXPECT_GT(line.at("recommended").at("time").at("tokens_per_second"), 0);

  const TestDirectory directory;
  const std::string page = (directory.path() / "sweep.html").string();
  const Finished drawn = plan({"--model", golden("gpt2-tiny").string(), "--device", "cpu", "--memory",
                               "device=64MiB,host=64MiB", "--sweep", "seq-len=8..32", "--html", page});
  EXPECT_EQ(drawn.code, 0) << drawn.err;
  EXPECT_TRUE(names(read_text(page), "Bytes of a rank: device", "\"xs\":[8.0,16.0,32.0]"));
}

TEST_F(Plan, RefusesNonsenseInOneMessage) {
  const std::vector<std::pair<Arguments, std::string>> cases{
      {{}, "--model DIR"},
      {{"--params", "1e9", "--layers", "2"}, "not by several"},
      {{"--params", "nan"}, "--params nan"},
      {{"--params", "-7"}, "--params -7"},
      {{"--params", "1e18"}, "2^63"},
      {{"--params", "3", "--ranks", "4"}, "at most 3"},
      {{"--params", "1e9", "--ranks", "0"}, "--ranks 0"},
      {{"--params", "1e9", "--bytes-per-param", "18"}, "--bytes-per-param 18"},
      {{"--params", "1e9", "--micro-batch", "0"}, "plan: --micro-batch 0"},
      {{"--params", "1e9", "--seq-len", "0"}, "plan: --seq-len 0"},
      {{"--params", "1e9", "--memory", "device=-1GB"}, "plan: --memory"},
      {{"--params", "1e9", "--dtype", "bf16"}, "--dtype: goes with --model"},
      {{"--params", "1e9", "--peak-tflops", "-5"}, "--peak-tflops -5"},
      {{"--params", "1e9", "--peak-tflops", "1e300"}, "--peak-tflops 1e300"},
      {{"--params", "1e9", "--bandwidth", "0"}, "--bandwidth 0"},
      {{"--params", "1e9", "--bandwidth", "1e300"}, "--bandwidth 1e300"},
      {{"--explain", "run.jsonl", "--html", "page.html"}, "--html: is of a plan, not of --explain"},
      {{"--layers", "2", "--hidden", "64", "--heads", "4", "--inference", "--sweep", "ranks=1,2"},
       "--sweep: is of the formulas"},
      {{"--params", "1e9", "--sweep", "width=3"}, "--sweep width=3"},
      {{"--params", "1e9", "--sweep", "ranks=0,1"}, "--ranks 0"},
      {{"--model", golden("gpt2-tiny").string(), "--sweep", "hidden=64"}, "not by several"},
      {{"--model", golden("gpt2-tiny").string(), "--sweep", "bandwidth=1"}, "--sweep bandwidth=1"},
      {{"--model", golden("gpt2-tiny").string(), "--sweep", "ranks=1,2", "--sweep", "ranks=4"}, "twice"},
      {{"--layers", "0", "--hidden", "64", "--heads", "4"}, "--layers 0"},
      {{"--layers", "2", "--hidden", "64", "--heads", "5"}, "--heads 5"},
      {{"--layers", "2", "--hidden", "64"}, "--heads is missing"},
      {{"--layers", "1e9", "--hidden", "1e9", "--heads", "1"}, "2^63"},
      {{"--layers", "2", "--hidden", "-64", "--heads", "4"}, "--hidden -64"},
      {{"--layers", "2.5", "--hidden", "64", "--heads", "4"}, "--layers 2.5"},
      {{"--layers", "100000", "--hidden", "64", "--heads", "4", "--hardware", "h200"}, "plan: --layers 100000"},
      {{"--layers", "100000", "--hidden", "64", "--heads", "4", "--inference"}, "plan: --layers 100000"},
      {{"--layers", "2", "--hidden", "2e6", "--heads", "4", "--hardware", "h200"}, "plan: --hidden 2000000"},
      {{"--layers", "2", "--hidden", "64", "--heads", "4", "--vocab", "2e17", "--hardware", "h200"},
       "plan: --vocab 200000000000000000"},
      {{"--layers", "2", "--hidden", "64", "--heads", "4", "--inference", "--prompt-tokens", "1e18"},
       "plan: --prompt-tokens 1000000000000000000"},
      {{"--params", "1e9", "--gpus-per-node", "-1"}, "--gpus-per-node -1"},
      {{"--model", golden("gpt2-tiny").string(), "--hardware", "h200", "--ranks", "16", "--gpus-per-node", "16"},
       "--gpus-per-node 16"},
      {{"--params", "1e9", "--inference"}, "--params 1e9"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--batch", "0"}, "--batch 0"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--new-tokens", "-3"}, "--new-tokens -3"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--prompt-tokens", "1e18"}, "--prompt-tokens 1000000"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--new-tokens", "1e6"}, "positions"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--seq-len", "16"}, "--seq-len: is of training"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--weights-dtype", "int3"}, "--weights-dtype int3"},
      {{"--model", golden("gpt2-tiny").string(), "--inference", "--prompt-tokens", "8", "--new-tokens", "8", "--ranks",
        "1e10"},
       "--ranks 10000000000"},
      {{"--model", golden("gpt2-tiny").string(), "--ranks", "1e10"}, "--ranks 10000000000"},
      {{"--model", golden("gpt2-tiny").string(), "--ranks", "1000000"}, "--ranks 1000000"},
      {{"--model", golden("gpt2-tiny").string(), "--device", "cuda", "--seq-len", "1000000"}, "--seq-len 1000000"}};
  for (const auto& [arguments, part] : cases) {
    const Finished finished = plan(arguments);
    EXPECT_EQ(finished.code, 2) << part;
    EXPECT_EQ(finished.out, "") << part;
    EXPECT_TRUE(names(finished.err, "plan: ", part));
    EXPECT_EQ(std::count(finished.err.begin(), finished.err.end(), '\n'), 1) << finished.err;
  }
}

// The command as it is printed, for these tokens.
Arguments words_of(const std::string& command) {
  Arguments arguments;
  std::istringstream words(command);
  for (std::string word; words >> word;) arguments.push_back(word);
  EXPECT_EQ(arguments.front(), "zeepo");
  arguments.erase(arguments.begin());
  for (std::string& word : arguments)
    if (word == "FILE") word = (golden("gpt2-tiny") / "tokens.bin").string();
  return arguments;
}

// What is planned is what the recommended run plans, and uses.
TEST_F(Plan, RecommendsARunThatFits) {
  for (const char* memory : {"device=64MiB,host=64MiB", "device=600KiB,host=64MiB", "device=400KiB,host=64MiB"}) {
    const Json json = planned({"--model", golden("gpt2-tiny").string(), "--device", "cpu", "--dtype", "bf16",
                               "--seq-len", "16", "--micro-batch", "2", "--memory", memory});
    const Json& recommended = json.at("recommended");
    ASSERT_TRUE(recommended.at("fits")) << memory << " " << recommended.dump();
    Arguments arguments = words_of(recommended.at("command"));
    arguments.insert(arguments.end(), {"--steps", "2", "--threads", "2", "--log", "-"});
    const Finished finished = run_program(kProgram, arguments, {});
    ASSERT_EQ(finished.code, 0) << finished.err;
    std::vector<Json> lines;
    std::istringstream stream(finished.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
    for (const char* tier : {"device", "host", "nvme"}) {
      EXPECT_EQ(lines.front().at(tier).at("arena_bytes"), recommended.at("arena_bytes").at(tier)) << memory << tier;
      EXPECT_LE(lines.back().at("ranks").at(0).at("peak_bytes").at(tier).at("total"),
                recommended.at("arena_bytes").at(tier))
          << memory << tier;
    }
  }
}

TEST_F(Plan, PlansEveryStageOfAModelForManyRanks) {
  const Json json = planned({"--model", golden("gpt2-tiny").string(), "--ranks", "24", "--gpus-per-node", "8",
                             "--device", "cpu", "--seq-len", "16", "--memory", "device=64MiB,host=64MiB"});
  EXPECT_EQ(json.at("exact").at("ranks_on_node"), 8);
  EXPECT_EQ(json.at("exact").at("plans").size(), 28u);
  EXPECT_EQ(json.at("recommended").at("stage"), 2);
  EXPECT_EQ(json.at("recommended").at("deepspeed").at("zero_optimization").at("stage"), 2);
  const auto device = [&](std::size_t stage) {
    return json.at("exact").at("plans").at(7 * stage).at("arena_bytes").at("device").get<std::int64_t>();
  };
  EXPECT_GT(device(0), device(1));
  EXPECT_GT(device(1), device(3));
}

// Ten to the fifteenth: the formulas' figures still fit 63 bits; ten times as many do not.
TEST_F(Plan, CountsAQuadrillionParameters) {
  const Json json = planned({"--params", "1e15", "--ranks", "1000"});
  EXPECT_EQ(json.at("stages").at(0).at("bytes_per_rank"), 16'000'000'000'000'000);
  EXPECT_EQ(json.at("stages").at(3).at("bytes_per_rank"), 16'000'000'000'000);
  // A run has a limit of its own, which its plan tells.
  const Finished finished = plan({"--layers", "1000", "--hidden", "292000", "--heads", "1000", "--hardware", "dgx-h100",
                                  "--seq-len", "1024", "--ranks", "128"});
  EXPECT_EQ(finished.code, 1);
  EXPECT_TRUE(names(finished.err, "gradient norm", "128 ranks", "at most 2^29"));
}

// Bytes of a name that are no UTF-8 become U+FFFD.
TEST_F(Plan, TakesDirectoriesOfAnyName) {
  const TestDirectory directory;
  const std::string model = (directory.path() / "model\xff").string();
  std::filesystem::copy(golden("gpt2-tiny"), model, std::filesystem::copy_options::recursive);
  const Arguments asked{"--model",     model, "--device", "cpu", "--memory", "device=300KiB,host=1KiB,nvme=1GB",
                        "--nvme-path", model};
  for (const Arguments& more : {Arguments{"--seq-len", "16"}, Arguments{"--seq-len", "16", "--json"},
                                Arguments{"--inference", "--prompt-tokens", "4", "--new-tokens", "4", "--json"}}) {
    Arguments arguments = asked;
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished finished = plan(arguments);
    EXPECT_EQ(finished.code, 0) << finished.err;
    if (more.back() == "--json") {
      EXPECT_TRUE(names(finished.out, "model\ufffd"));
    }
  }
}

// The command asks for what was planned.
TEST_F(Plan, RepeatsTheTiersInTheCommandForInference) {
  const Json json = planned({"--inference", "--model", golden("gpt2-tiny").string(), "--device", "cpu", "--memory",
                             "device=64MiB,host=64MiB", "--simulate-link", "host-device=8MB/s", "--prompt-tokens", "4",
                             "--new-tokens", "4"});
  EXPECT_TRUE(names(json.at("recommended").at("command"), "--device cpu", "--memory device=64MiB,host=64MiB",
                    "--simulate-link host-device=8MB/s"));
}

// Host memory and disk of a described node are shared by the ranks that run on it, in training and in inference.
TEST_F(Plan, SharesANodeAmongTheRanksThatRunOnIt) {
  const auto host = [](const Arguments& ranks) {
    Arguments training{"--model", golden("gpt2-tiny").string(), "--hardware", "h200"};
    training.insert(training.end(), ranks.begin(), ranks.end());
    Arguments inference = training;
    inference.insert(inference.end(), {"--inference", "--prompt-tokens", "4", "--new-tokens", "4"});
    training.insert(training.end(), {"--seq-len", "16"});
    const auto share =
        planned(training).at("exact").at("plans").at(0).at("budget_bytes").at("host").get<std::int64_t>();
    EXPECT_EQ(planned(inference).at("choices").back().at("budget_bytes").at("host"), share);
    return share;
  };
  const std::int64_t node = std::int64_t{2000} << 30;
  EXPECT_EQ(host({"--ranks", "8"}), node / 8);
  EXPECT_EQ(host({"--ranks", "2"}), node / 2);
  EXPECT_EQ(host({"--ranks", "1"}), node);
  EXPECT_EQ(host({"--ranks", "8", "--gpus-per-node", "4"}), node / 4);
}

// Nothing fits in files where there are none.
TEST_F(Plan, KnowsMachinesWithoutADisk) {
  const TestDirectory directory;
  const std::string file = directory
                               .write("node.json", R"({"name": "no disk", "nodes": 1, "gpus_per_node": 1,
            "gpu": {"memory": "24GiB", "tflops": {"fp32": 70, "16bit": 150}, "attention_tflops": 110,
                    "memory_gbps": 900, "kernel_us": 4},
            "host": {"memory": "64GiB", "step_gelements": 0.9}, "link": {"to_device_gbps": 24, "to_host_gbps": 24},
            "network": {"within_node_gbps": 20, "between_nodes_gbps": 1.2, "collective_us": 40}})")
                               .string();
  const Arguments asked{"--model", golden("gpt2-tiny").string(), "--hardware", file};
  Arguments training = asked, inference = asked, files = asked;
  training.insert(training.end(), {"--seq-len", "16"});
  inference.insert(inference.end(), {"--inference", "--prompt-tokens", "4", "--new-tokens", "4"});
  const Json trained = planned(training), asked_of = planned(inference);
  for (const Json& plan : trained.at("exact").at("plans")) {
    const std::string name = plan.at("name");
    EXPECT_EQ(plan.at("fits"), name.find("nvme") == std::string::npos) << name;
  }
  for (const Json& choice : asked_of.at("choices"))
    EXPECT_EQ(choice.at("fits"), choice.at("weights_in") != "nvme") << choice.at("weights_in");
  files.insert(files.end(), {"--seq-len", "16", "--nvme-path", directory.path().string()});
  const Finished refused = plan(files);
  EXPECT_EQ(refused.code, 2);
  EXPECT_TRUE(names(refused.err, "no disk is described without a disk"));
}

TEST_F(Plan, PlansInference) {
  const Arguments asked{"--inference",
                        "--model",
                        golden("gpt2-tiny").string(),
                        "--device",
                        "cpu",
                        "--prompt-tokens",
                        "12",
                        "--new-tokens",
                        "4",
                        "--memory",
                        "device=64MiB,host=64MiB"};
  const Json json = planned(asked);
  EXPECT_EQ(json.at("recommended").at("weights_in"), "resident");
  EXPECT_EQ(json.at("recommended").at("weights_dtype"), "same");
  // Of the run that the recommended command starts.
  Arguments arguments{"generate",
                      "--model",
                      golden("gpt2-tiny").string(),
                      "--device",
                      "cpu",
                      "--max-new-tokens",
                      "4",
                      "--ids",
                      "1,2,3,4,5,6,7,8,9,10,11,12",
                      "--ignore-eos",
                      "--json",
                      "--threads",
                      "1",
                      "--speculate",
                      "off",
                      "--memory",
                      "device=64MiB,host=64MiB"};
  for (const Json& choice : json.at("choices")) {
    if (choice.at("weights_dtype") != "same" || choice.at("weights_in") == "nvme") continue;
    Arguments here = arguments;
    here.insert(here.end(), {"--offload-param", choice.at("weights_in") == "host" ? "host" : "none"});
    const Finished finished = run_program(kProgram, here, {});
    ASSERT_EQ(finished.code, 0) << finished.err;
    std::istringstream lines(finished.out);
    Json last;
    for (std::string line; std::getline(lines, line);) last = Json::parse(line);
    const Json& held = last.at("ranks").at(0).at("peak_bytes");
    for (const char* tier : {"device", "host"})
      EXPECT_EQ(held.at(tier).at("total"), choice.at("bytes").at(tier).at("total")) << tier << choice.at("weights_in");
  }
  const Finished text = plan(asked);
  std::istringstream lines(text.out);
  for (std::string line; std::getline(lines, line);)
    if (line.find(golden("gpt2-tiny").string()) == std::string::npos) {
      EXPECT_LE(line.size(), 80u) << line;
    }
}

TEST_F(Plan, WritesAPageThatNeedsNothingElse) {
  const TestDirectory directory;
  const std::string page = (directory.path() / "plan.html").string();
  const std::vector<std::pair<Arguments, std::string>> cases{
      {{"--model", golden("gpt2-tiny").string(), "--hardware", "dgx-a100", "--seq-len", "16"}, "\"timeline\":{"},
      {{"--layers", "2", "--hidden", "64", "--heads", "4", "--hardware", "h200", "--inference"}, "\"timeline\":{"},
      {{"--params", "7.5e9", "--ranks", "64"}, "States of a rank"},
      {{"--params", "1e12", "--sweep", "bandwidth=1..1024", "--sweep", "micro-batch=1,2"},
       "Efficiency by the bandwidth"}};
  for (const auto& [arguments, part] : cases) {
    Arguments with = arguments;
    with.insert(with.end(), {"--html", page});
    const Finished finished = plan(with);
    ASSERT_EQ(finished.code, 0) << finished.err;
    const std::string html = read_text(page);
    EXPECT_TRUE(names(html, "<!DOCTYPE html>", "const zeepoPlan = {", part));
    EXPECT_EQ(html.find("http://"), html.find("http://www.w3.org/2000/svg"));  // a name, not an address
    EXPECT_EQ(html.find("https://"), std::string::npos);
  }
  const Finished failed = plan({"--params", "1e9", "--html", "/nowhere/plan.html"});
  EXPECT_EQ(failed.code, 1);
  EXPECT_TRUE(names(failed.err, "/nowhere/plan.html"));
}

// Of the golden model, a few steps, with its log.
Finished train(const std::string& log, const Arguments& more, const std::string& threads = "1") {
  Arguments arguments{"train",
                      "--model",
                      golden("gpt2-tiny").string(),
                      "--data",
                      (golden("gpt2-tiny") / "tokens.bin").string(),
                      "--device",
                      "cpu",
                      "--seq-len",
                      "16",
                      "--steps",
                      "3",
                      "--threads",
                      threads,
                      "--log",
                      log};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_program(kProgram, arguments, {});
}

TEST_F(Plan, GoesByTheProbeThatWasKept) {
  const Arguments asked{"--model",  golden("gpt2-tiny").string(), "--device", "cpu", "--seq-len", "16",
                        "--memory", "device=64MiB,host=64MiB"};
  const Json before = planned(asked);
  EXPECT_TRUE(before.at("machine").is_null());
  EXPECT_TRUE(before.at("recommended").at("time").is_null());
  const Finished probed = run_program(kProgram, {"probe", "--device", "cpu", "--threads", "1"}, {});
  ASSERT_EQ(probed.code, 0) << probed.err;
  const Json after = planned(asked);
  EXPECT_TRUE(after.at("machine").get<std::string>().starts_with("zeepo probe of 2")) << after.at("machine");
  EXPECT_GT(after.at("recommended").at("time").at("step_seconds").get<double>(), 0);
  EXPECT_GT(after.at("exact").at("plans").at(0).at("time").at("tokens_per_second").get<double>(), 0);

  // A finished run is planned again from its log.
  const TestDirectory directory;
  const std::string log = (directory.path() / "run.jsonl").string();
  ASSERT_EQ(train(log, {}).code, 0);
  const Json told = planned({"--explain", log});
  EXPECT_GT(told.at("time").at("predicted_seconds").get<double>(), 0);
  const std::string probe = told.at("time").at("predicted_by");
  EXPECT_TRUE(after.at("machine").get<std::string>().starts_with(probe)) << probe << after.at("machine");
  // Of other threads than those that were measured.
  ASSERT_EQ(train(log, {}, "3").code, 0);
  EXPECT_EQ(planned({"--explain", log}).at("time").at("predicted_by"),
            probe + ", by 1 thread a rank where a run has 3");
}

TEST_F(Plan, ExplainsAndComparesRuns) {
  const TestDirectory directory;
  const std::string resident = (directory.path() / "resident.jsonl").string(),
                    offloaded = (directory.path() / "offloaded.jsonl").string();
  ASSERT_EQ(train(resident, {}).code, 0);
  const Finished trained = train(offloaded, {"--offload-optimizer", "host", "--offload-param", "host"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const Finished text = plan({"--explain", offloaded});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(names(text.out, "host optimizer", "host at once", "time of a step", "not planned: zeepo probe",
                    "host to device a step", "device to host a step", "advice"));
  const Json told = planned({"--explain", offloaded});
  EXPECT_TRUE(told.at("time").at("predicted_seconds").is_null());
  EXPECT_GT(told.at("bytes_per_step").at("link_bytes/host_to_device").get<double>(), 0);
  EXPECT_TRUE(planned({"--explain", resident}).at("bytes_per_step").empty());

  const Finished beside = run_program(kProgram, {"compare", resident, offloaded}, {});
  EXPECT_EQ(beside.code, 0) << beside.err;
  EXPECT_TRUE(names(beside.out, "resident", "offloaded", "host memory, peak", "loss, last"));
  const Finished json = run_program(kProgram, {"compare", "--json", resident, offloaded}, {});
  EXPECT_EQ(json.code, 0) << json.err;
  EXPECT_TRUE(names(json.out, "loss_last", "peak_bytes/host"));
  EXPECT_TRUE(Json::accept(json.out)) << json.out;
}

TEST_F(Plan, FitsATerminalOf80Columns) {
  const Finished finished = plan({"--model", golden("gpt2-tiny").string(), "--ranks", "8", "--device", "cuda",
                                  "--seq-len", "16", "--memory", "device=1MiB,host=100KiB"});
  EXPECT_EQ(finished.code, 0) << finished.err;
  std::istringstream lines(finished.out);
  const std::string model = golden("gpt2-tiny").string();
  for (std::string line; std::getline(lines, line);)
    if (line.find(model) == std::string::npos) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  EXPECT_TRUE(names(finished.out, "stage and placement", "beside the textbook", "By the papers' formulas"));
}

}  // namespace
}  // namespace zeepo
