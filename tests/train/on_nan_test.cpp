// --on-nan: a loss that is not a number is told with its samples; the run stops with nothing changed, or goes on as if
// the step's batch had not been there, to the bit, at any stage, placement and number of ranks.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/train/drawn_runs.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/model/safetensors.h"
#include "zeepo/train/nan_watch.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t kSeq = 8, kBatch = 6;  // tokens a sample, samples a step
constexpr std::uint16_t kToken = 255;         // overflows at position kPosition
constexpr std::int64_t kPosition = 3;

class NanSteps : public DrawnRuns {
 protected:
  NanSteps() { make_model(); }
  // GPT-2 with one large number in a token's and a position's embedding: their sum is infinite, each alone is not.
  void make_model() {
    const fs::path golden = fs::path(kTestData) / "golden-extra" / "gpt2-options";
    fs::create_directories(model());
    for (const char* name : {"config.json", "model.safetensors"}) fs::copy_file(golden / name, model() / name);
    const SafetensorsFile file(golden / "model.safetensors");
    std::uint64_t header = 0;
    std::ifstream(golden / "model.safetensors", std::ios::binary).read(reinterpret_cast<char*>(&header), sizeof header);
    std::fstream out(model() / "model.safetensors", std::ios::binary | std::ios::in | std::ios::out);
    const float large = 2e38f;
    for (const auto& entry : file.entries()) {
      const bool token = entry.name.ends_with("wte.weight"), position = entry.name.ends_with("wpe.weight");
      if (!token && !position) continue;
      const std::int64_t width = 32, row = token ? kToken : kPosition;
      out.seekp(static_cast<std::streamoff>(8 + header) + entry.begin_byte + row * width * 4);
      out.write(reinterpret_cast<const char*>(&large), sizeof large);
    }
  }
  fs::path model() const { return files_.path() / "model"; }
  // `steps` batches of samples; the token in sample `at` of each batch named.
  fs::path data(std::int64_t steps, const std::vector<std::int64_t>& bad, std::int64_t at, bool leave_out) {
    std::mt19937 random(5);
    std::vector<std::uint16_t> tokens;
    for (std::int64_t step = 1; step <= steps; ++step) {
      std::vector<std::uint16_t> batch;
      for (std::int64_t i = 0; i < kBatch * kSeq; ++i) batch.push_back(static_cast<std::uint16_t>(random() % 200));
      batch[0] = 7;  // the last target of the batch before
      if (std::find(bad.begin(), bad.end(), step) != bad.end()) {
        batch[static_cast<std::size_t>(at * kSeq + kPosition)] = kToken;
        if (leave_out) continue;
      }
      tokens.insert(tokens.end(), batch.begin(), batch.end());
    }
    tokens.push_back(7);
    const fs::path path = files_.path() / "tokens.bin";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * 2));
    return path;
  }
  TrainOptions options() const {
    TrainOptions options;
    options.model = model();
    options.seq_len = kSeq;
    options.grad_accum = kBatch;
    options.order = Order::as_is;
    options.threads = 1;
    options.schedule.lr = 1e-3;
    options.optimizer.weight_decay = 0.01f;
    options.dropout = 0;
    return options;
  }
};

TEST_F(NanSteps, SkipGoesOnAsIfTheBatchWereNotThere) {
  const std::vector<std::int64_t> bad{2, 3, 5};
  for (const float clip : {1.0f, 0.0f}) {
    TrainOptions rule = options();
    rule.clip = clip;
    rule.on_nan = OnNan::skip;
    rule.steps = 3;
    rule.data = data(6, bad, 4, true);
    const RunRecord reference = train(rule);
    EXPECT_TRUE(events("fault").empty());
    rule.steps = 6;
    rule.data = data(6, bad, 4, false);
    for (int round = 0; round < 5; ++round) {
      const int ranks = round == 0 ? 1 : arrange(rule, kBatch);
      const RunRecord record = train(rule, ranks);
      const std::string what = fmt::format("{} ranks, stage {}, clip {}, params {}/{}, optimizer {}/{}", ranks,
                                           rule.stage, clip, rule.placement.params.host, rule.placement.params.nvme,
                                           rule.placement.optimizer.host, rule.placement.optimizer.nvme);
      EXPECT_EQ(record.hash, reference.hash) << what;
      EXPECT_EQ(record.losses,
                (std::vector<double>{reference.losses[0], -1, -1, reference.losses[1], -1, reference.losses[2]}))
          << what;
      const auto faults = events("fault");
      ASSERT_EQ(faults.size(), 3u) << what;
      EXPECT_EQ(faults[0].at("step"), 2);
      EXPECT_EQ(faults[0].at("micro_batches"),
                (Json::array({{{"micro_step", 4 / ranks}, {"rank", 4 % ranks}, {"samples", {kBatch + 4}}}})))
          << what;
      EXPECT_TRUE(names(printed_, "step 5: the loss is ", fmt::format("micro-step {} of rank {}", 4 / ranks, 4 % ranks),
                        fmt::format("samples {}", 4 * kBatch + 4), "tokens/s  skipped  "));
      for (const char* wrong : {"skipped: overflow", "-nan"})
        EXPECT_EQ(printed_.find(wrong), std::string::npos) << printed_;
    }
  }
}

TEST_F(NanSteps, StopSavesNothingAndLeavesTheNewestCheckpoint) {
  for (const float clip : {1.0f, 0.0f}) {
    TrainOptions rule = options();
    rule.clip = clip;
    rule.steps = 6;
    rule.data = data(6, {4}, 1, false);
    const int ranks = arrange(rule, kBatch);
    rule.checkpoint_dir = files_.path() / "checkpoints";
    rule.checkpoint_every = 2;
    rule.output = files_.path() / "output";
    EXPECT_TRUE(names(error_text([&] { train(rule, ranks); }), "not a number"));
    EXPECT_EQ(events("fault").at(0).at("step"), 4);
    EXPECT_TRUE(names(printed_, "step 4: the loss is ", fmt::format("samples {}", 3 * kBatch + 1), "training stops"));
    EXPECT_FALSE(fs::exists(rule.output));
    const auto saved = list_checkpoints(rule.checkpoint_dir);
    ASSERT_EQ(saved.size(), 1u);
    EXPECT_EQ(saved[0].step, 2);
    // Another run goes on from there past the batch.
    rule.resume.wanted = true;
    rule.on_nan = OnNan::skip;
    const RunRecord resumed = train(rule, ranks);
    TrainOptions whole = options();
    whole.clip = clip;
    whole.steps = 6;
    whole.data = rule.data;
    whole.on_nan = OnNan::skip;
    EXPECT_EQ(resumed.hash, train(whole).hash);
    fs::remove_all(rule.checkpoint_dir);
    fs::remove_all(rule.output);
  }
}

TEST_F(NanSteps, SkipGivesUpAfterManyInARow) {
  TrainOptions rule = options();
  rule.on_nan = OnNan::skip;
  rule.grad_accum = kBatch / 3;
  rule.steps = NanWatch::kMostInARow + 5;
  std::vector<std::int64_t> bad(static_cast<std::size_t>(NanWatch::kMostInARow));
  for (std::size_t i = 0; i < bad.size(); ++i) bad[i] = static_cast<std::int64_t>(i) + 2;
  rule.data = data(rule.steps, bad, 0, false);
  rule.output = files_.path() / "output";
  EXPECT_TRUE(names(error_text([&] { train(rule, 3); }), "20 steps in a row", "step 21"));
  EXPECT_EQ(events("fault").size(), bad.size() + 1) << "each of them, and the end of the run";
  EXPECT_EQ(events("fault").back()["what"], "end");
  EXPECT_FALSE(fs::exists(rule.output));
  bad.pop_back();
  rule.data = data(rule.steps, bad, 0, false);
  EXPECT_FALSE(train(rule, 3).hash.empty());
}

// The last step may be one of them: the weights are those before it.
TEST_F(NanSteps, SkipOfTheLastStepIsNoFailure) {
  TrainOptions rule = options();
  rule.on_nan = OnNan::skip;
  rule.steps = 2;
  rule.data = data(3, {3}, 5, false);
  const std::string before = train(rule).hash;
  rule.steps = 3;
  EXPECT_EQ(train(rule).hash, before);
}

}  // namespace
}  // namespace zeepo
