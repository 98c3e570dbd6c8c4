// The trained model is not lost: faults of its place are found before the first step, or outlasted at the end.
#include "zeepo/train/model_saving.h"

#include <fstream>
#include <future>

#include "tests/support/errors.h"
#include "tests/support/gated_log.h"
#include "tests/support/golden.h"
#include "tests/support/scratch_model.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

class Saving : public testing::TestWithParam<int> {
 protected:
  fs::path at(const char* name) const { return directory_.path() / name; }
  TrainOptions options() const {
    const Golden golden = load_golden("golden/gpt2-tiny");
    TrainOptions options;
    options.model = golden.directory;
    options.data = golden.directory / "tokens.bin";
    options.seq_len = 8;
    options.steps = 2;
    options.threads = 1;
    options.stage = 2;
    options.schedule.lr = 1e-6;
    options.device_bytes = options.host_bytes = 1 << 28;
    options.output = at("trained");
    options.output_retry_seconds = 0;
    return options;
  }
  void train(const TrainOptions& options) const {
    testing::internal::CaptureStderr();
    struct Release {
      ~Release() { testing::internal::GetCapturedStderr(); }
    } release;
    ThreadsWorld world(GetParam());
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  }
  // In the middle of the run `meanwhile` happens. Returns what the run threw.
  std::string train_gated(TrainOptions options, GatedLog& log, const std::function<void()>& meanwhile,
                          const std::function<void()>& after_fault = {}) const {
    options.log = at("log").string();
    options.steps = GatedLog::kSteps;
    options.micro_batch = 1;
    auto ended = std::async(std::launch::async, [&]() -> std::string {
      try {
        train(options);
      } catch (const std::exception& error) {
        return error.what();
      }
      return {};
    });
    EXPECT_TRUE(becomes_true([&] { return log.has_steps(); }));
    meanwhile();
    if (after_fault) {
      EXPECT_TRUE(becomes_true([&] { return log.has("\"fault\""); }));
      after_fault();
    }
    EXPECT_TRUE(becomes_true([&] { return log.read(); }));
    return ended.get();
  }
  // It loads, and an idle step leaves it as it is.
  void expect_model(const fs::path& path, const std::string& hash) const {
    TrainOptions again = options();
    again.model = path;
    again.schedule.lr = 0;
    again.steps = 1;
    again.output.clear();
    again.log = at("again").string();
    train(again);
    std::ifstream lines(again.log);
    std::string line, last;
    while (std::getline(lines, line)) last = line;
    EXPECT_EQ(nlohmann::json::parse(last).at("weights_hash"), hash);
  }

  const TestDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(Ranks, Saving, testing::Values(1, 3));

TEST_P(Saving, TriesAgainUntilThePlaceTakesTheModel) {
  GatedLog log(at("log"));
  TrainOptions patient = options();
  patient.output_retry_seconds = 20;
  const std::string error = train_gated(
      patient, log, [&] { std::ofstream(at("trained")) << "in the way"; }, [&] { fs::remove(at("trained")); });
  EXPECT_EQ(error, "");
  const auto faults = log.events("fault");
  ASSERT_FALSE(faults.empty());
  EXPECT_TRUE(names(faults[0].at("message").get<std::string>(), at("trained").string(), "not a directory", "next try"));
  ASSERT_EQ(log.events("saved").size(), 1u);
  expect_model(at("trained"), log.events("summary").at(0).at("weights_hash"));
  EXPECT_TRUE(partial_files_in(directory_.path()).empty());
}

TEST_P(Saving, TakesTheSecondPlace) {
  GatedLog log(at("log"));
  TrainOptions careful = options();
  careful.output_fallback = at("elsewhere/trained");
  EXPECT_EQ(train_gated(careful, log, [&] { std::ofstream(at("trained")) << "in the way"; }), "");
  EXPECT_EQ(log.events("saved").at(0).at("path"), careful.output_fallback.string());
  EXPECT_TRUE(names(log.events("fault").at(0).at("message").get<std::string>(), at("trained").string(),
                    "then in " + careful.output_fallback.string()));
  expect_model(careful.output_fallback, log.events("summary").at(0).at("weights_hash"));
  EXPECT_TRUE(fs::is_regular_file(at("trained")));
}

TEST_P(Saving, WithoutAnyPlaceTheErrorNamesThem) {
  GatedLog log(at("log"));
  TrainOptions careful = options();
  careful.output_fallback = at("elsewhere");
  careful.output_retry_seconds = 0.1;
  const std::string error = train_gated(careful, log, [&] {
    for (const char* name : {"trained", "elsewhere"}) std::ofstream(at(name)) << "in the way";
  });
  if (GetParam() == 1)
    EXPECT_TRUE(names(error, "not saved", at("trained").string(), at("elsewhere").string()));
  else
    EXPECT_FALSE(error.empty());
  EXPECT_EQ(log.events("fault").size(), 4u + 1u) << "two tries at each, and the end of the run";
  EXPECT_EQ(log.events("fault").back()["what"], "end");
  EXPECT_TRUE(partial_files_in(directory_.path()).empty());
}

TEST_P(Saving, ATraceThatCannotBeWrittenDoesNotLoseTheModel) {
  GatedLog log(at("log"));
  TrainOptions traced = options();
  traced.trace = at("trace.json");
  const std::string error = train_gated(traced, log, [&] { fs::create_directory(at("trace.json")); });
  EXPECT_FALSE(error.empty());
  if (GetParam() == 1) {
    EXPECT_TRUE(names(error, "trace.json", "directory"));
  }
  expect_model(at("trained"), log.events("summary").at(0).at("weights_hash"));
}

TEST_P(Saving, ThePlaceIsLookedAtBeforeTheFirstStep) {
  const auto refused = [&](const TrainOptions& options) {
    ThreadsWorld world(1);
    return error_text([&] { run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); }); });
  };
  TrainOptions options = this->options();
  options.log = at("log").string();
  fs::create_symlink(at("nowhere"), at("trained"));
  EXPECT_TRUE(names(refused(options), "--output", at("trained").string(), "link", at("nowhere").string()));
  fs::remove(at("trained"));
  fs::create_directories(at("trained/model.safetensors"));
  EXPECT_TRUE(names(refused(options), "--output", "model.safetensors", "is a directory"));
  fs::remove_all(at("trained"));
  std::ofstream(at("elsewhere")) << "in the way";
  options.output_fallback = at("elsewhere");
  EXPECT_TRUE(names(refused(options), "--output-fallback", "elsewhere", "not a directory"));
  EXPECT_FALSE(fs::exists(at("log"))) << "no step, not even a plan";
  options.output_fallback = options.output;
  EXPECT_TRUE(names(refused(options), "--output-fallback", "is --output"));
  options.output.clear();
  EXPECT_TRUE(names(refused(options), "--output-fallback", "second place"));
}

TEST(SavingRoom, IsLookedForBeforeTheFirstStep) {
  const ScratchModel model(1 << 20, 1, 1000, 100);  // 50 TB
  TrainOptions options = model.options();
  options.seq_len = 8;
  options.output = model.path() / "trained";
  Trainer trainer(options);
  EXPECT_TRUE(names(error_text([&] { trainer.run(); }), "--output", "the model takes", "TiB", "free"));
}

TEST(SavingRoom, IsCountedToTheByte) {
  const TestDirectory directory;
  const Golden golden = load_golden("golden/mistral-tiny");
  const WeightFiles files(golden.directory);
  std::vector<ModelTensor> tensors;
  for (const std::string& name : files.names()) tensors.push_back({name, files.at(name).shape});
  const TensorReader read = [&](const std::string& name, std::int64_t begin, std::span<float> out) {
    files.read(name, begin, out);
  };
  for (const ModelDirectoryOptions& how :
       {ModelDirectoryOptions{.dtype = DType::bf16}, {.dtype = DType::f32, .shard_bytes = 100'000}}) {
    const fs::path target = directory.path() / name_of(how.dtype);
    write_model_directory(golden.directory, target, tensors, read, how);
    std::int64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(target)) bytes += static_cast<std::int64_t>(file.file_size());
    EXPECT_EQ(model_directory_bytes(golden.directory, tensors, how), bytes);
  }
}

TEST(SavingRoom, IsWatchedWhileThereIsTime) {
  const ScratchModel model(16, 2, 100, 200);
  TrainOptions options = model.options();
  options.output = model.path() / "trained";
  options.steps = 10;
  std::int64_t free = 1 << 30;
  {
    RunReport report(options, alone());
    const std::vector<ModelTensor> tensors{{"w", {1000}}};
    ModelSaving saving(options, tensors, alone(), [&](const fs::path&) { return free; });
    saving.check_places();
    free = 4000;  // the weight's bytes, and no room for the header
    testing::internal::CaptureStderr();
    saving.watch_room(8, report);  // not yet: no minute has passed
    EXPECT_EQ(read_text(options.log), "");
    saving.watch_room(9, report);  // before the last step
    saving.watch_room(9, report);  // said once
    free = 1 << 30;
    saving.watch_room(9, report);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(names(said, "warning", "--output", "the model takes", "room for the model again"));
    free = 4000;
    EXPECT_TRUE(names(error_text([&] { saving.check_places(); }), "the model takes"));
  }
  std::istringstream lines(read_text(options.log));
  std::vector<nlohmann::json> events;
  for (std::string line; std::getline(lines, line);) events.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].at("event"), "fault");
  EXPECT_EQ(events[0].at("step"), 9);
}

// Weights that are not numbers, at the end of a run whose losses all were.
class Unfit : public Saving {
 protected:
  std::string error_of(const TrainOptions& options) const {
    const std::string error = error_text([&] { train(options); });
    EXPECT_FALSE(fs::exists(options.output)) << error;
    EXPECT_TRUE(partial_files_in(directory_.path()).empty());
    TrainOptions without = options;
    without.output.clear();
    EXPECT_TRUE(options.output_dtype || names(error_text([&] { train(without); }), "weight", "step"));
    return error;
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, Unfit, testing::Values(1, 3));

TEST_P(Unfit, WeightsThatAreNotNumbersAreNotSaved) {
  TrainOptions fast = options();
  fast.steps = 1;
  fast.schedule.lr = 1e38;
  EXPECT_TRUE(names(error_of(fast), "after step 1", "weight", "--lr"));
  TrainOptions unguarded = options();
  unguarded.steps = 1;
  unguarded.optimizer.eps = 0;  // 0 / 0 where a gradient is 0
  EXPECT_TRUE(names(error_of(unguarded), "after step 1", "nan", "--eps"));
  TrainOptions half = options();
  half.steps = 1;
  half.dtype = DType::f16;
  half.loss_scale.initial = 1024;  // no step is skipped
  half.schedule.lr = 1e5;
  EXPECT_TRUE(names(error_of(half), "after step 1", "fp16"));
}

// A model with one weight of 3e38, which no token uses.
class HugeWeight : public Unfit {
 protected:
  HugeWeight() {
    const Golden golden = load_golden("golden/gpt2-tiny");
    fs::copy(golden.directory, at("model"), fs::copy_options::recursive);
    const WeightFiles files(golden.directory);
    std::vector<SafetensorsWriter::Tensor> tensors;
    for (const std::string& name : files.names()) tensors.push_back({name, DType::f32, files.at(name).shape});
    SafetensorsWriter writer(at("model") / "model.safetensors", tensors);
    for (const auto& tensor : writer.tensors()) {
      std::vector<float> values(static_cast<std::size_t>(elements_of(tensor.name, tensor.shape)));
      files.read(tensor.name, 0, values);
      if (tensor.name.ends_with("wpe.weight")) values.back() = value_;
      writer.write(values);
    }
    writer.commit();
  }
  TrainOptions huge() const {
    TrainOptions huge = options();
    huge.model = at("model");
    huge.optimizer.weight_decay = 0;
    return huge;
  }
  const float value_ = 3e38f;
};

INSTANTIATE_TEST_SUITE_P(Ranks, HugeWeight, testing::Values(1, 3));

TEST_P(HugeWeight, DoesNotFitASmallerDtype) {
  TrainOptions narrow = huge();
  narrow.output_dtype = DType::f16;
  EXPECT_TRUE(names(error_of(narrow), "wpe.weight", "3e+38", "fp16", "--output-dtype"));
  // The second place gets it in fp32.
  narrow.output_fallback = at("elsewhere");
  EXPECT_TRUE(names(error_text([&] { train(narrow); }), "wpe.weight", "elsewhere in fp32"));
  EXPECT_FALSE(fs::exists(narrow.output));
  EXPECT_EQ(WeightFiles(at("elsewhere")).at("transformer.wpe.weight").dtype, DType::f32);
}

TEST_P(HugeWeight, DoesNotFitTheRun) {
  TrainOptions narrow = huge();
  narrow.dtype = DType::f16;
  const std::string error = error_text([&] { train(narrow); });
  EXPECT_TRUE(names(error, "wpe.weight", "3e+38", "fp16", "--dtype"));
}

}  // namespace
}  // namespace zeepo
