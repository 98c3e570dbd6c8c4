// Linear layers in tiles: the same losses, weights and files as whole ones, with less working memory.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/support/scratch_model.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/nn/layers.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

TrainOptions golden_options(const std::string& name) {
  const auto directory = std::filesystem::path(kTestData) / "golden" / name;
  TrainOptions options;
  options.model = directory;
  options.data = directory / "tokens.bin";
  options.seq_len = 24;
  options.steps = 3;
  options.order = Order::as_is;
  options.threads = 1;
  options.schedule.lr = 2e-3;
  options.optimizer.eps = 1e-6f;
  options.device_bytes = std::int64_t{1} << 28;
  return options;
}

struct TiledRun {
  std::vector<double> losses, norms;
  Json plan, summary;
  std::string hash() const { return summary.at("weights_hash"); }
  std::int64_t working(std::size_t rank = 0) const {
    return summary.at("ranks").at(rank).at("peak_bytes").at("device").at("working");
  }
  std::int64_t planned() const { return plan.at("device").at("bytes").at("working"); }
};

TiledRun train(TrainOptions options, int ranks) {
  const TestDirectory directory;
  options.log = (directory.path() / "log.jsonl").string();
  testing::internal::CaptureStderr();
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  testing::internal::GetCapturedStderr();
  std::istringstream lines(read_text(options.log));
  TiledRun result;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "step") {
      result.losses.push_back(event.at("loss"));
      result.norms.push_back(event.at("grad_norm"));
    }
    if (event.at("event") == "plan") result.plan = event;
    if (event.at("event") == "summary") result.summary = event;
  }
  return result;
}

// Tied and untied heads, biases and none, both layouts, q, k, v and gate, up in one weight.
class Tiling : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Models, Tiling, ::testing::Values("gpt2-tiny", "llama-tiny", "qwen2-tiny"));

TEST_P(Tiling, GivesTheBitsOfWholeLayers) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    auto options = golden_options(GetParam());
    options.dtype = dtype;
    options.clip = 0;  // the norm is summed in blocks of a unit, and tiles are units
    const TiledRun whole = train(options, 2);
    for (const std::int64_t tiles : {2, 7, 1000}) {  // 1000: a row each
      options.linear_tiles = tiles;
      options.stage = tiles == 7 ? 3 : 0;
      const TiledRun tiled = train(options, 2);
      EXPECT_EQ(tiled.losses, whole.losses) << tiles << " tiles, " << name_of(dtype);
      EXPECT_EQ(tiled.hash(), whole.hash()) << tiles << " tiles, " << name_of(dtype);
      for (std::size_t i = 0; i < whole.norms.size(); ++i)
        EXPECT_NEAR(tiled.norms[i], whole.norms[i], 1e-6 * whole.norms[i]) << tiles << " tiles, step " << i;
    }
  }
}

TEST_P(Tiling, NoStagePlaceOrPrefetchChangesABit) {
  auto options = golden_options(GetParam());
  options.dtype = DType::bf16;
  options.linear_tiles = 3;
  options.grad_accum = 2;
  options.host_bytes = std::int64_t{1} << 26;
  options.clip = 0.1f;
  const TiledRun reference = train(options, 2);
  struct Case {
    int stage;
    std::int64_t prefetch;
    Place place;
    bool checkpointing;
  };
  for (const Case& c : {Case{1, 0, Place::device, true}, Case{2, 1 << 14, Place::device, false},
                        Case{3, 0, Place::device, false}, Case{3, 1 << 14, Place::device, true},
                        Case{3, 1 << 30, Place::host, true}, Case{0, 1 << 12, Place::host, false}}) {
    options.stage = c.stage;
    options.prefetch_bytes = c.prefetch;
    options.placement = {.params = Shares::all_in(c.place),
                         .optimizer = Shares::all_in(c.place),
                         .activations = c.checkpointing ? c.place : Place::device};
    options.activation_checkpointing = c.checkpointing;
    const TiledRun run = train(options, 2);
    const auto what = fmt::format("stage {}, prefetch {}, {}", c.stage, c.prefetch, name_of(c.place));
    EXPECT_EQ(run.losses, reference.losses) << what;
    EXPECT_EQ(run.norms, reference.norms) << what;
    EXPECT_EQ(run.hash(), reference.hash()) << what;
    EXPECT_EQ(run.working(), run.planned()) << what;
  }
}

TEST_P(Tiling, SavesWhatWholeLayersSaveAndReadsItAgain) {
  const TestDirectory directory;
  auto options = golden_options(GetParam());
  options.clip = 0;
  options.output = directory.path() / "whole";
  (void)train(options, 2);
  options.output = directory.path() / "tiled";
  options.linear_tiles = 5;
  options.stage = 3;
  (void)train(options, 2);
  for (const auto& file : std::filesystem::directory_iterator(directory.path() / "whole"))
    EXPECT_EQ(read_text(options.output / file.path().filename()), read_text(file.path())) << file.path();

  options.model = options.output;
  options.output.clear();
  const TiledRun tiled = train(options, 1);
  options.linear_tiles = 1;
  const TiledRun whole = train(options, 1);
  EXPECT_EQ(tiled.losses, whole.losses);
  EXPECT_EQ(tiled.hash(), whole.hash());
}

TEST(TilingMemory, WorkingBytesFallWithTheTiles) {
  const ScratchModel model(256, 2, 64, 300);
  TrainOptions options;
  options.model = model.path();
  options.data = model.path() / "tokens.bin";
  options.from_scratch = true;
  options.seq_len = 12;
  options.steps = 2;
  options.threads = 1;
  options.dtype = DType::bf16;
  options.stage = 3;
  options.prefetch_bytes = 0;
  options.device_bytes = std::int64_t{1} << 28;
  for (const bool checkpointing : {false, true}) {
    options.activation_checkpointing = checkpointing;
    options.linear_tiles = 1;
    const std::int64_t whole = train(options, 2).working();
    std::int64_t last = whole;
    for (const std::int64_t tiles : {2, 4, 8}) {
      options.linear_tiles = tiles;
      const std::int64_t working = train(options, 2).working();
      EXPECT_LT(working, last) << tiles << " tiles, checkpointing " << checkpointing;
      EXPECT_LT(working, whole / tiles) << tiles << " tiles, checkpointing " << checkpointing;
      last = working;
    }
  }
}

TEST(TilingOptions, RanksMustAgreeAndTheNumberMustMakeSense) {
  auto options = golden_options("gpt2-tiny");
  options.linear_tiles = 0;
  EXPECT_TRUE(names(error_text([&] { Trainer trainer(options); }), "--tile-linear 0", "at least 1"));
  std::string text;
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    auto mine = golden_options("gpt2-tiny");
    mine.linear_tiles = 1 + communicator.rank();
    const std::string said = error_text([&] { Trainer trainer(mine, communicator); });
    if (communicator.rank() == 0) text = said;
  });
  EXPECT_TRUE(names(text, "--tile-linear", "1", "2"));
}

}  // namespace
}  // namespace zeepo
