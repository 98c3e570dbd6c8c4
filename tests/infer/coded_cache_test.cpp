// Quantised weights are kept by what the model's files hold, and a damaged file is made again.
#include "zeepo/infer/coded_cache.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/test_directory.h"
#include "zeepo/infer/generator.h"
#include "zeepo/infer/inference.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

class CodedCache : public ::testing::Test {
 protected:
  CodedCache() { fs::copy(load_golden("golden/llama-tiny").directory, model_.path(), fs::copy_options::recursive); }

  struct Start {
    std::vector<float> logits;
    std::string said;
  };
  Start start(const fs::path& cache, CodedType type = CodedType::int4) const {
    InferenceOptions options;
    options.command = "generate";
    options.model = model_.path();
    options.threads = 2;
    options.weights = type;
    options.device_bytes = 1 << 24;
    options.host_bytes = 1 << 24;
    options.cache_directory = cache;
    Start start;
    const auto work = [&](ModelEngine& engine, LanguageModel& model) {
      start.logits = prompt_logits(engine, model, std::vector<std::int32_t>{1, 2, 3});
    };
    testing::internal::CaptureStderr();
    Inference inference(options, alone(), work);
    start.said = testing::internal::GetCapturedStderr();
    work(inference.engine(), inference.model());
    return start;
  }
  std::vector<fs::path> kept() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(cache_.path()))
      if (entry.path().extension() == ".codes") files.push_back(entry.path());
    return files;
  }
  static void flip(const fs::path& path, std::int64_t at) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const char old = static_cast<char>(file.get());
    file.seekp(at);
    file.put(static_cast<char>(old ^ 1));
  }

  const TestDirectory model_, cache_;
};

TEST_F(CodedCache, GivesTheSameBitsAndIsMadeOnce) {
  const Start without = start({}), first = start(cache_.path());
  ASSERT_EQ(kept().size(), 1u);
  const auto written = fs::last_write_time(kept()[0]);
  const Start second = start(cache_.path());
  EXPECT_EQ(first.logits, without.logits);
  EXPECT_EQ(second.logits, without.logits);
  EXPECT_EQ(fs::last_write_time(kept()[0]), written);
  EXPECT_EQ(first.said + second.said, "");
  (void)start(cache_.path(), CodedType::int8);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(CodedCache, IsMadeAgainWhereItIsDamaged) {
  const Start whole = start(cache_.path());
  const fs::path file = kept().at(0);
  const auto bytes = static_cast<std::int64_t>(fs::file_size(file));
  for (const std::int64_t at : {std::int64_t{100}, bytes - 100, bytes - 20, bytes - 3}) {
    flip(file, at);
    const Start again = start(cache_.path());
    EXPECT_EQ(again.logits, whole.logits) << at;
    EXPECT_TRUE(names(again.said, "made again", file.filename().string())) << at;
    EXPECT_EQ(start(cache_.path()).said, "");
  }
  fs::resize_file(file, 10);
  EXPECT_TRUE(names(start(cache_.path()).said, "made again", "cut short"));
}

TEST_F(CodedCache, FollowsTheContentOfTheWeights) {
  const Start before = start(cache_.path());
  flip(model_.path() / "model.safetensors",
       static_cast<std::int64_t>(fs::file_size(model_.path() / "model.safetensors")) - 2);
  const Start after = start(cache_.path()), without = start({});
  EXPECT_EQ(after.logits, without.logits);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(CodedCache, FollowsContentWhoseTimeWasPutBack) {
  (void)start(cache_.path());
  const fs::path weights = model_.path() / "model.safetensors";
  const auto time = fs::last_write_time(weights);
  flip(weights, static_cast<std::int64_t>(fs::file_size(weights)) - 2);
  fs::last_write_time(weights, time);
  EXPECT_EQ(start(cache_.path()).logits, start({}).logits);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(CodedCache, ADamagedNoteIsWrittenAnew) {
  const Start whole = start(cache_.path());
  for (const auto& entry : fs::directory_iterator(cache_.path()))
    if (entry.path().extension() == ".txt") std::ofstream(entry.path()) << std::string(5000, '\0');
  for (int i = 0; i < 2; ++i) {
    const Start again = start(cache_.path());
    EXPECT_EQ(again.logits, whole.logits);
    EXPECT_EQ(again.said, "");
  }
}

TEST_F(CodedCache, IsLeftOutWhereItCannotBeWritten) {
  const fs::path file = cache_.write("file", "");
  const Start without = start({}), refused = start(file / "below");
  EXPECT_EQ(refused.logits, without.logits);
  EXPECT_TRUE(names(refused.said, "not kept", "--cache-dir"));
}

}  // namespace
}  // namespace zeepo
