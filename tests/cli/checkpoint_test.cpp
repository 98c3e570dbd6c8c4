// Checkpoints as a user has them: exported, looked into, damaged, stopped by signals, and on a disk that takes no more.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/gated_log.h"
#include "tests/support/places.h"
#include "tests/support/test_data.h"
#include "zeepo/model/weight_files.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

// The names of all files below a directory, with their bytes.
std::map<std::string, std::string> files_in(const fs::path& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::recursive_directory_iterator(directory))
    if (entry.is_regular_file()) files[entry.path().lexically_relative(directory)] = whole_file(entry.path());
  return files;
}

class CheckpointsOfARun : public testing::Test {
 protected:
  std::string at(const std::string& name) const { return directory_.path() / name; }
  std::string step(int number) const { return at(fmt::format("saved/step-{:08}", number)); }
  // `train` with checkpoints in "saved", on a golden model unless another is given.
  Arguments train(const Arguments& given) const {
    Arguments arguments{"train",       "--data",   golden("gpt2-tiny") / "tokens.bin",
                        "--seq-len",   "16",       "--micro-batch",
                        "2",           "--device", "cpu",
                        "--threads",   "1",        "--memory",
                        "device=64MiB"};
    const auto standard = [&](const std::string& option, const std::string& value) {
      if (std::ranges::find(given, option) == given.end()) arguments.insert(arguments.end(), {option, value});
    };
    standard("--model", golden("gpt2-tiny"));
    standard("--checkpoint-dir", at("saved"));
    standard("--log", at("log"));
    arguments.insert(arguments.end(), given.begin(), given.end());
    return arguments;
  }
  Finished run(const Arguments& given, const Limits& limits = {}) const {
    return run_program(kProgram, train(given), limits);
  }
  Finished inspect(const std::string& path, const Arguments& given = {}) const {
    Arguments arguments{"inspect", path};
    arguments.insert(arguments.end(), given.begin(), given.end());
    return run_program(kProgram, arguments);
  }
  Finished exported(int number, const std::string& output, const Arguments& given) const {
    Arguments arguments{"export", step(number), "--output", output};
    arguments.insert(arguments.end(), given.begin(), given.end());
    return run_program(kProgram, arguments);
  }
  std::vector<Json> events(const std::string& kind) const {
    std::vector<Json> found;
    std::istringstream lines(whole_file(at("log")));
    for (std::string line; std::getline(lines, line);)
      if (Json event = Json::parse(line); event.at("event") == kind) found.push_back(std::move(event));
    return found;
  }
  std::string hash() const { return events("summary").at(0).at("weights_hash"); }
  // Of a run that nobody disturbs, and that writes no checkpoint.
  std::string undisturbed_hash(int steps) const {
    const Finished finished =
        run_program(kProgram, {"train", "--data", golden("gpt2-tiny") / "tokens.bin", "--model", golden("gpt2-tiny"),
                               "--seq-len", "16", "--micro-batch", "2", "--device", "cpu", "--threads", "1", "--steps",
                               std::to_string(steps), "--log", "-"});
    EXPECT_EQ(finished.code, 0) << finished.err;
    const std::size_t summary = finished.out.rfind("{\"event\":\"summary\"");
    return Json::parse(finished.out.substr(summary)).at("weights_hash");
  }

  const TestDirectory directory_;
};

TEST_F(CheckpointsOfARun, AnExportIsTheModelThatTheRunSaves) {
  for (const std::string dtype : {"fp32", "bf16"}) {
    ASSERT_EQ(run({"--steps", "2", "--dtype", dtype}).code, 0);
    for (const std::string saved_in : {"fp32", "bf16"}) {
      // At its end already: it takes no step, and saves the model.
      ASSERT_EQ(
          run({"--steps", "2", "--dtype", dtype, "--resume", "--output", at("trained"), "--output-dtype", saved_in})
              .code,
          0);
      const Finished finished = exported(2, at("exported"), {"--dtype", saved_in});
      EXPECT_EQ(finished.code, 0) << finished.err;
      EXPECT_EQ(files_in(at("exported")), files_in(at("trained"))) << dtype << " as " << saved_in;
      fs::remove_all(at("trained"));
      fs::remove_all(at("exported"));
    }
    EXPECT_EQ(exported(2, at("exported"), {}).code, 0);  // in the run's dtype
    const Json model = Json::parse(inspect(at("exported"), {"--json"}).out);
    for (const Json& weight : model.at("weights")) EXPECT_EQ(weight.at("dtype"), dtype == "fp32" ? "F32" : "BF16");
    fs::remove_all(at("exported"));
    fs::remove_all(at("saved"));
  }
}

TEST_F(CheckpointsOfARun, AnExportInShardsCanBeTrained) {
  ASSERT_EQ(run({"--steps", "2"}).code, 0);
  ASSERT_EQ(exported(2, at("whole"), {}).code, 0);
  ASSERT_EQ(exported(2, at("shards"), {"--shard-size", "40KB"}).code, 0);
  int shards = 0;
  for (const auto& [name, bytes] : files_in(at("shards"))) {
    if (!name.ends_with(".safetensors")) continue;
    ++shards;
    EXPECT_LE(bytes.size(), 80'000u) << name;  // a tensor is in one file, with a header
  }
  EXPECT_GT(shards, 1);
  EXPECT_TRUE(fs::exists(fs::path(at("shards")) / "model.safetensors.index.json"));
  std::vector<std::string> hashes;
  for (const std::string model : {"whole", "shards"}) {
    ASSERT_EQ(run({"--model", at(model), "--steps", "1", "--checkpoint-dir", at("other")}).code, 0) << model;
    hashes.push_back(hash());
    fs::remove_all(at("other"));
  }
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_EQ(exported(2, at("none"), {"--shard-size", "0"}).code, 2);
  EXPECT_EQ(exported(2, at("none"), {"--dtype", "fp8"}).code, 2);
  EXPECT_EQ(exported(7, at("none"), {}).code, 1);
  EXPECT_FALSE(fs::exists(at("none")));
}

TEST_F(CheckpointsOfARun, WeightsThatAreNotNumbersAreInNoCheckpoint) {
  const Arguments saving{"--checkpoint-every", "1", "--checkpoint-keep", "1"};
  const auto with = [&](const Arguments& given) {
    Arguments all = saving;
    all.insert(all.end(), given.begin(), given.end());
    return run(all);
  };
  ASSERT_EQ(with({"--steps", "2"}).code, 0);
  const Finished finished = with({"--steps", "3", "--resume", "--lr", "1e38", "--allow-changes"});
  EXPECT_EQ(finished.code, 1) << finished.err;
  EXPECT_TRUE(names(finished.err, "checkpoint of step 3", "weight", "not a number", "training goes on"));
  EXPECT_FALSE(fs::exists(step(3)));
  EXPECT_TRUE(partial_files_in(at("saved")).empty());
  // The one before is the newest still.
  fs::remove(at("log"));
  const Finished resumed = with({"--steps", "4", "--resume"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(events("resume").at(0).at("step"), 2);
  EXPECT_EQ(hash(), undisturbed_hash(4));
}

TEST_F(CheckpointsOfARun, AnExportHoldsNumbersAlone) {
  fs::copy(golden("gpt2-tiny"), at("model"), fs::copy_options::recursive);
  {
    const WeightFiles files(at("model"));
    const SafetensorsFile& file = files.files()[0];
    const auto last = file.at("transformer.wpe.weight").end_byte - static_cast<std::int64_t>(sizeof(float));
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    std::uint64_t header = 0;
    bytes.read(reinterpret_cast<char*>(&header), sizeof header);
    const float huge = 3e38f;  // of a position that no sample has
    bytes.seekp(static_cast<std::streamoff>(sizeof header + header) + last);
    bytes.write(reinterpret_cast<const char*>(&huge), sizeof huge);
  }
  ASSERT_EQ(run({"--model", at("model"), "--steps", "1", "--weight-decay", "0"}).code, 0);
  const Finished narrow = exported(1, at("exported"), {"--dtype", "fp16"});
  EXPECT_EQ(narrow.code, 1) << narrow.err;
  EXPECT_TRUE(names(narrow.err, "wpe.weight", "3e+38", "fp16", "--dtype fp32"));
  EXPECT_FALSE(fs::exists(at("exported")));
  EXPECT_EQ(exported(1, at("exported"), {"--dtype", "bf16"}).code, 0);
}

TEST_F(CheckpointsOfARun, AFlippedByteIsNamedAndPassedOver) {
  const Arguments four_steps{"--steps", "4", "--checkpoint-every", "2"};
  ASSERT_EQ(run(four_steps).code, 0);
  const std::string undisturbed = hash();
  struct Place {
    std::string file;
    std::streamoff offset;   // from the end where it is below 0
    std::string named = {};  // beside the file
  };
  for (const auto& [file, offset, named] :
       {Place{"rank-00000.safetensors", -1, ".moment2"}, Place{"rank-00000.safetensors", 40},
        Place{"manifest.json", 100}, Place{"model/config.json", 5}}) {
    {
      std::fstream bytes(fs::path(step(4)) / file, std::ios::in | std::ios::out | std::ios::binary);
      const auto from = offset < 0 ? std::ios::end : std::ios::beg;
      const char was = static_cast<char>(bytes.seekg(offset, from).get());
      bytes.seekp(offset, from).put(static_cast<char>(was ^ 4));
    }
    const Finished looked = inspect(at("saved"));
    EXPECT_EQ(looked.code, 1) << file;
    EXPECT_TRUE(names(looked.err, (fs::path(step(4)) / file).string(), named));
    EXPECT_TRUE(names(looked.out, step(2) + ": a checkpoint of step 2, whole", step(4) + ": damaged"));
    fs::remove(at("log"));
    Arguments resumed = four_steps;
    resumed.push_back("--resume");
    const Finished finished = run(resumed);
    EXPECT_EQ(finished.code, 0) << finished.err;
    EXPECT_EQ(events("resume").at(0).at("step"), 2);
    ASSERT_EQ(events("fault").size(), 1u);
    EXPECT_TRUE(names(events("fault")[0].at("message").get<std::string>(), "passed over", file, named));
    EXPECT_TRUE(names(finished.err, "passed over"));
    EXPECT_EQ(hash(), undisturbed) << file;
  }
  EXPECT_EQ(inspect(at("saved")).code, 0);  // written anew
}

TEST_F(CheckpointsOfARun, AModelsDirectoryIsInspectedToo) {
  fs::copy(golden("gpt2-tiny"), at("model"));
  const Finished told = inspect(at("model"), {"--tensors"});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_TRUE(names(told.out, "a gpt2 model", "no checksums", "wte.weight"));
  const Json json = Json::parse(inspect(at("model"), {"--json"}).out);
  EXPECT_EQ(json.at("kind"), "model");
  EXPECT_GT(json.at("params"), 0);
  const fs::path weights = fs::path(at("model")) / "model.safetensors";
  fs::resize_file(weights, fs::file_size(weights) - 1);
  const Finished cut = inspect(at("model"));
  EXPECT_EQ(cut.code, 1);
  EXPECT_TRUE(names(cut.err, weights.string()));
  EXPECT_EQ(inspect(at("nothing")).code, 1);
}

TEST_F(CheckpointsOfARun, ASignalSavesTheStep) {
  for (const int signal : {SIGTERM, SIGINT}) {
    RunningProgram program(kProgram, train({"--steps", "1000000"}));
    ASSERT_TRUE(becomes_true([&] { return whole_file(at("log")).find("\"event\":\"step\"") != std::string::npos; }));
    program.send(signal);
    const Finished finished = program.wait();
    EXPECT_EQ(finished.code, 75) << finished.err;
    EXPECT_TRUE(names(finished.err, "--resume goes on"));
    const int last = events("stop").at(0).at("step");
    EXPECT_EQ(events("checkpoint").at(0).at("step"), last);
    EXPECT_EQ(inspect(step(last)).code, 0);
    fs::remove(at("log"));
    EXPECT_EQ(run({"--steps", std::to_string(last + 2), "--resume"}).code, 0);
    EXPECT_EQ(events("step").size(), 2u);
    EXPECT_EQ(hash(), undisturbed_hash(last + 2));
    fs::remove(at("log"));
    fs::remove_all(at("saved"));
  }
}

TEST_F(CheckpointsOfARun, ASignalLeavesNoMoreThanTheGrace) {
  ASSERT_EQ(run({"--steps", "1"}).code, 0);
  fs::remove(at("log"));
  // A step copies a few hundred KiB over this link.
  RunningProgram program(kProgram,
                         train({"--steps", "1000", "--resume", "--stop-grace", "1", "--offload-optimizer", "host",
                                "--offload-param", "host", "--no-tune", "--simulate-link", "host-device=2KiB/s"}));
  ASSERT_TRUE(becomes_true([&] { return whole_file(at("log")).find("\"resume\"") != std::string::npos; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // until there are steps
  program.send(SIGTERM);
  const Finished finished = program.wait();
  EXPECT_EQ(finished.code, -SIGTERM) << finished.err;
  EXPECT_TRUE(names(finished.err, "--stop-grace"));
  EXPECT_TRUE(events("stop").empty());
  EXPECT_TRUE(partial_files_in(at("saved")).empty());
  EXPECT_EQ(inspect(step(1)).code, 0);
}

TEST_F(CheckpointsOfARun, AFileThatMayNotGrowLeavesTheOneBefore) {
  ASSERT_EQ(run({"--steps", "2"}).code, 0);
  const auto bytes = static_cast<long>(fs::file_size(fs::path(step(2)) / "rank-00000.safetensors"));
  fs::remove(at("log"));
  const Finished finished =
      run({"--steps", "4", "--checkpoint-every", "1", "--checkpoint-keep", "1", "--resume"}, {.file_bytes = bytes - 1});
  EXPECT_EQ(finished.code, 3) << finished.err;
  EXPECT_TRUE(names(finished.err, "warning: checkpoint of step 3", "rank-00000.safetensors", "step 4/4"));
  EXPECT_TRUE(names(finished.err, "the checkpoint of the last step could not be written"));
  EXPECT_EQ(events("step").size(), 2u);
  EXPECT_EQ(hash(), undisturbed_hash(4));
  EXPECT_GE(events("fault").size(), 2u);
  for (const Json& fault : events("fault")) EXPECT_EQ(fault.at("what"), "checkpoint");
  EXPECT_TRUE(events("checkpoint").empty());
  EXPECT_EQ(inspect(step(2)).code, 0);
  EXPECT_TRUE(partial_files_in(at("saved")).empty());
}

TEST_F(CheckpointsOfARun, ADirectoryThatGoesAwayAndComesBack) {
  for (const bool comes_back : {true, false}) {
    GatedLog log(at("log"));
    RunningProgram program(kProgram, train({"--steps", std::to_string(GatedLog::kSteps), "--checkpoint-every", "20",
                                            "--checkpoint-keep", "100"}));
    ASSERT_TRUE(becomes_true([&] { return fs::exists(step(20)); })) << program.said();
    fs::rename(at("saved"), at("elsewhere"));
    // The run comes no further than the log lets it.
    ASSERT_TRUE(becomes_true([&] { return log.has("\"fault\""); })) << program.said();
    if (comes_back) fs::rename(at("elsewhere"), at("saved"));
    ASSERT_TRUE(becomes_true([&] { return log.read(); }));
    const Finished finished = program.wait();
    EXPECT_EQ(finished.code, comes_back ? 0 : 3) << finished.err;
    EXPECT_EQ(log.events("step").size(), static_cast<std::size_t>(GatedLog::kSteps));
    EXPECT_TRUE(names(finished.err, "warning: checkpoint of step", "training goes on"));
    EXPECT_EQ(log.events("fault").at(0).at("what"), "checkpoint");
    const Finished looked = inspect(comes_back ? step(GatedLog::kSteps) : at("elsewhere"));
    EXPECT_EQ(looked.code, 0) << looked.err;
    EXPECT_TRUE(names(looked.out, "whole"));
    for (const char* name : {"log", "saved", "elsewhere"}) fs::remove_all(at(name));
  }
}

}  // namespace
}  // namespace zeepo
