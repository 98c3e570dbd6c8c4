// The model's own files as the place of its weights: those that were parsed, and no others.
#include "zeepo/infer/model_files.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

TEST(ModelFiles, AreThoseWhoseTablesWereRead) {
  const Golden golden = load_golden("golden/llama-tiny");
  const TestDirectory directory;
  const fs::path model = directory.path() / "model.safetensors";
  fs::copy_file(golden.directory / "model.safetensors", model);
  const auto weights = [&](const WeightFiles& files) {
    return weights_in_model_files(golden.config, files, DType::f32)->weights.size();
  };
  const WeightFiles parsed(directory.path());
  EXPECT_GT(weights(parsed), 0u);
  // Another file of the same size and time.
  const auto time = fs::last_write_time(model);
  fs::copy_file(model, directory.path() / "other");
  fs::last_write_time(directory.path() / "other", time);
  fs::rename(directory.path() / "other", model);
  EXPECT_TRUE(names(error_text([&] { weights(parsed); }), "model.safetensors", "has changed"));
  // The same file, written to.
  const WeightFiles again(directory.path());
  EXPECT_GT(weights(again), 0u);
  fs::last_write_time(model, time + std::chrono::seconds(1));
  EXPECT_TRUE(names(error_text([&] { weights(again); }), "model.safetensors", "has changed"));
}

}  // namespace
}  // namespace zeepo
