// A run that goes on from a checkpoint ends with the weights of the undisturbed run, to the bit: on any number of
// ranks, at any stage, with any placement. A sample of the grid, drawn anew in every run; ZEEPO_TEST_SEED repeats one.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/train/drawn_runs.h"
#include "zeepo/checkpoint/checkpoint_directory.h"
#include "zeepo/train/checkpointing.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/resume.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kMicroBatches = 12;  // a step

class Resume : public DrawnRuns {
 protected:
  TrainOptions rule() {
    TrainOptions options;
    options.model = fs::path(kTestData) / "golden" / one_of<std::string>({"llama-tiny", "gpt2-tiny", "qwen3-tiny"});
    options.data = options.model / "tokens.bin";
    options.seq_len = 8;
    options.threads = 1;
    options.steps = 5;
    options.schedule.lr = 2e-3;
    options.schedule.type = one_of<ScheduleType>({ScheduleType::constant, ScheduleType::cosine});
    options.dtype = one_of<DType>({DType::f32, DType::bf16, DType::f16});
    options.clip = one_of<float>({0.0f, 1.0f});
    options.dropout = one_of<float>({0.0f, 0.2f});
    options.optimizer.type = one_of<OptimizerType>({OptimizerType::adamw, OptimizerType::adam, OptimizerType::sgd});
    options.optimizer.moments = one_of<MomentType>({MomentType::fp32, MomentType::bf16, MomentType::eight_bit});
    if (options.optimizer.type == OptimizerType::sgd && options.optimizer.moments == MomentType::eight_bit)
      options.optimizer.moments = MomentType::bf16;
    options.loss_scale = {.initial = 1024, .patience = 2};
    return options;
  }
  fs::path checkpoints() const { return files_.path() / "checkpoints"; }
};

TEST_F(Resume, EndsWithTheWeightsOfTheUndisturbedRun) {
  for (int round = 0; round < 6; ++round) {
    TrainOptions options = rule();
    TrainOptions plain = options;
    plain.grad_accum = kMicroBatches;
    const RunRecord reference = train(plain, 1);
    options.checkpoint_dir = checkpoints();
    options.checkpoint_every = one_of<std::int64_t>({1, 2});
    options.checkpoint_keep = 9;
    options.checkpoint_bytes = one_of<std::int64_t>({1, 1 << 22});
    std::string history;
    for (int life = 0; life < 3; ++life) {
      const int ranks = arrange(options, kMicroBatches, {1, 2, 3, 4});
      history += described(options, ranks) + "\n";
      options.resume.wanted = life > 0;
      const RunRecord record = train(options, ranks);
      EXPECT_EQ(record.hash, reference.hash) << history;
      const std::vector<double> tail(reference.losses.end() - static_cast<std::ptrdiff_t>(record.losses.size()),
                                     reference.losses.end());
      EXPECT_EQ(record.losses, tail) << history;
      // The last one is gone: the next life has steps to take.
      const auto found = list_checkpoints(checkpoints());
      ASSERT_FALSE(found.empty());
      EXPECT_EQ(found.back().step, options.steps);
      for (const auto& entry : found)
        if (entry.step > 3 - life) fs::remove_all(entry.path);
    }
    fs::remove_all(checkpoints());
  }
}

TEST_F(Resume, FromFilesOfThreeRanksToOneRankToHostMemoryOfFour) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    TrainOptions options = rule();
    options.dtype = dtype;
    options.schedule.type = ScheduleType::constant;
    options.steps = 6;
    options.grad_accum = kMicroBatches;
    const RunRecord reference = train(options, 1);
    options.checkpoint_dir = checkpoints();
    options.nvme_paths = {files_.path()};
    struct Life {
      int ranks, stage;
      Shares shares;
    };
    std::vector<double> losses;
    std::string hash;
    for (const Life& life : {Life{3, 3, {.nvme = 1}}, Life{1, 0, {}}, Life{4, 2, {.host = 1}}}) {
      options.resume.wanted = !losses.empty();
      options.steps = std::ssize(losses) + 2;
      options.grad_accum = kMicroBatches / life.ranks;
      options.stage = life.stage;
      options.placement.params = options.placement.optimizer = life.shares;
      const RunRecord record = train(options, life.ranks);
      losses.insert(losses.end(), record.losses.begin(), record.losses.end());
      hash = record.hash;
    }
    EXPECT_EQ(losses, reference.losses) << described(options, 4);
    EXPECT_EQ(hash, reference.hash) << described(options, 4);
    fs::remove_all(checkpoints());
  }
}

class ResumeOnce : public Resume {
 protected:
  ResumeOnce() {
    options_.model = fs::path(kTestData) / "golden" / "llama-tiny";
    options_.data = options_.model / "tokens.bin";
    options_.seq_len = 8;
    options_.threads = 1;
    options_.steps = 4;
    options_.checkpoint_dir = checkpoints();
    options_.checkpoint_every = 2;
    options_.checkpoint_keep = 9;
  }
  std::string refused(const TrainOptions& options, int ranks = 1) {
    return error_text([&] { train(options, ranks); });
  }
  // A byte of a tensor.
  void damage(std::int64_t step) {
    const fs::path file = checkpoint_path(checkpoints(), step) / "rank-00000.safetensors";
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    const char was = static_cast<char>(bytes.seekg(-5, std::ios::end).get());
    bytes.seekp(-5, std::ios::end).put(static_cast<char>(was ^ 1));
  }
  TrainOptions options_;
};

TEST_F(ResumeOnce, OptionsThatChangeTheResultAreRefusedUnlessAllowed) {
  train(options_, 1);
  options_.resume.wanted = true;
  options_.steps = 6;
  TrainOptions other = options_;
  other.schedule.lr = 5e-3;
  const std::string text = refused(other);
  EXPECT_TRUE(names(text, "--lr", "0.001", "0.005", "--allow-changes"));
  other.resume.allow_changes = true;
  train(other, 1);
  EXPECT_TRUE(names(printed_, "--lr 0.001, now 0.005"));
}

TEST_F(ResumeOnce, OtherMicroBatchesAreARefusedChange) {
  train(options_, 1);
  options_.resume.wanted = true;
  options_.steps = 6;
  const std::string text = refused(options_, 2);
  EXPECT_TRUE(names(text, "1 micro-batches a step", "now 2"));
  options_.resume.allow_changes = true;
  const RunRecord record = train(options_, 2);
  EXPECT_EQ(record.losses.size(), 2u);
}

TEST_F(ResumeOnce, ADamagedCheckpointIsPassedOver) {
  const RunRecord reference = train(options_, 1);
  damage(4);
  options_.resume.wanted = true;
  const RunRecord record = train(options_, 1);
  EXPECT_EQ(record.hash, reference.hash);
  EXPECT_EQ(record.losses.size(), 2u);
  EXPECT_TRUE(names(printed_, "passed over", "rank-00000.safetensors"));
  // Named, it is refused.
  damage(4);
  options_.resume.from = checkpoint_path(checkpoints(), 4);
  EXPECT_TRUE(names(refused(options_), "damaged", "rank-00000.safetensors"));
}

TEST_F(ResumeOnce, DamagedOnesOfLaterStepsDoNotCrowdOutWhatIsWritten) {
  options_.checkpoint_every = 1;
  const RunRecord reference = train(options_, 1);
  damage(3);
  damage(4);
  options_.resume.wanted = true;
  options_.checkpoint_keep = 1;
  options_.steps = 3;
  EXPECT_EQ(train(options_, 1).losses.size(), 1u);
  EXPECT_TRUE(names(printed_, "set aside", "step-00000004"));
  ASSERT_EQ(list_checkpoints(checkpoints()).size(), 1u);
  EXPECT_EQ(list_checkpoints(checkpoints())[0].step, 3);
  options_.steps = 4;
  const RunRecord record = train(options_, 1);
  EXPECT_EQ(record.losses.size(), 1u);
  EXPECT_EQ(record.hash, reference.hash);
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints()), {}), 1);  // what was set aside is gone
}

TEST_F(ResumeOnce, NoneWholeIsAnErrorAndNoneAtAllANewRun) {
  options_.resume.wanted = true;
  const RunRecord record = train(options_, 1);
  EXPECT_EQ(record.losses.size(), 4u);
  EXPECT_TRUE(names(printed_, "no checkpoint"));
  for (const auto& entry : list_checkpoints(checkpoints())) fs::remove(entry.path / kManifestName);
  EXPECT_TRUE(names(refused(options_), "none of the 2 checkpoints"));
}

TEST_F(ResumeOnce, ARunThatIsAtItsEndTakesNoStep) {
  const RunRecord reference = train(options_, 1);
  options_.resume.wanted = true;
  const RunRecord record = train(options_, 1);
  EXPECT_EQ(record.losses.size(), 0u);
  EXPECT_EQ(record.hash, reference.hash);
}

TEST_F(ResumeOnce, ACheckpointPastTheLastStepIsRefused) {
  train(options_, 1);
  options_.resume.wanted = true;
  options_.steps = 3;
  EXPECT_TRUE(names(refused(options_), "a checkpoint of step 4", "--steps 3 ends before it", "--steps 4"));
  options_.resume.from = checkpoint_path(checkpoints(), 2);
  EXPECT_EQ(train(options_, 1).losses.size(), 1u);
}

// As a checkpoint of a run on these ranks would say.
Manifest manifest_of(const RunSetup& setup) {
  Manifest manifest;
  manifest.step = 1;
  manifest.ranks = setup.ranks.ranks;
  manifest.nodes = nodes_of(setup);
  manifest.balance = {setup.balanced.speeds, setup.balanced.rows};
  for (const TrainOption& option : option_table()) manifest.options[option.name] = option.text(setup.options);
  std::erase_if(manifest.options, [](const auto& option) { return option.second.empty(); });
  return manifest;
}

TEST_F(ResumeOnce, OtherRanksAreAChangeOfTheResultWhereSumsDependOnThem) {
  const auto changes = [&](const OptionTexts& texts, const RankShape& before, const RankShape& after,
                           const OptionTexts& now = {}) {
    TrainOptions options = options_;
    for (const auto& [name, text] : texts) assign(options, name, text);
    const auto setup_of = [&](const RankShape& ranks) {
      options.grad_accum = kMicroBatches / ranks.ranks;
      return make_setup(options, ranks);
    };
    const Manifest manifest = manifest_of(setup_of(before));
    for (const auto& [name, text] : now) assign(options, name, text);
    return fmt::format("{}", fmt::join(changes_since(manifest, setup_of(after), {}).of_result, "; "));
  };
  const auto on = [](int ranks) { return RankShape{.ranks = ranks, .ranks_on_node = ranks}; };
  const auto by_nodes = [](std::vector<int> nodes) {
    return RankShape{.ranks = static_cast<int>(nodes.size()), .nodes = std::move(nodes)};
  };
  EXPECT_EQ(changes({}, on(2), on(3)), "");
  EXPECT_EQ(changes({{"--stage", "3"}}, by_nodes({0, 0, 1, 1}), on(4)), "");

  const OptionTexts gradients{{"--stage", "2"}, {"--reduce-dtype", "int8"}};
  EXPECT_EQ(changes(gradients, on(3), on(3)), "");
  EXPECT_TRUE(names(changes(gradients, on(2), on(3)), "--reduce-dtype int8 on 2 ranks, now 3"));
  EXPECT_TRUE(names(changes(gradients, on(2), on(1)), "--reduce-dtype int8 on 2 ranks, now 1"));
  EXPECT_TRUE(names(changes(gradients, by_nodes({0, 0, 1, 1}), on(4)), "--reduce-dtype int8 on nodes 0,0,1,1, now 0"));
  EXPECT_EQ(changes(gradients, by_nodes({5, 5, 2, 2}), by_nodes({0, 0, 1, 1})), "");
  EXPECT_EQ(changes(gradients, by_nodes({0, 1, 2, 3}), on(4)), "");  // nodes of one rank each, or one of all
  const OptionTexts in_pairs{{"--node-size", "2"}};
  EXPECT_EQ(changes(gradients, by_nodes({0, 0, 1, 1}), on(4), in_pairs), "");
  EXPECT_TRUE(names(changes(gradients, on(4), on(4), in_pairs), "--reduce-dtype int8 on nodes 0,0,0,0, now 0,0,1,1"));
  EXPECT_EQ(changes({{"--stage", "3"}}, on(4), on(4), in_pairs), "");

  const OptionTexts weights{{"--stage", "2"}, {"--gather-dtype", "int8"}};
  EXPECT_EQ(changes(weights, on(2), on(3)), "");
  EXPECT_TRUE(names(changes(weights, on(2), on(1)), "--gather-dtype int8 on 2 ranks, now 1"));
  EXPECT_TRUE(names(changes(weights, on(1), on(2)), "--gather-dtype int8 on 1 ranks, now 2"));

  const OptionTexts feedback{{"--stage", "2"}, {"--reduce-dtype", "int8"}, {"--reduce-feedback", "true"}};
  EXPECT_TRUE(names(changes(feedback, on(2), on(2)), "--reduce-feedback"));
  EXPECT_EQ(changes(feedback, on(1), on(1)), "");

  EXPECT_TRUE(names(changes({{"--reduce", "last"}}, on(2), on(3)), "--reduce last on 2 ranks, now 3"));
  EXPECT_EQ(changes({{"--reduce", "last"}}, on(2), on(2)), "");
  const OptionTexts local{{"--sum-order", "local"}};
  EXPECT_TRUE(names(changes(local, on(1), on(2)), "--sum-order local on 1 ranks, now 2"));
  EXPECT_EQ(changes(local, on(2), on(3)), "");
}

TEST_F(ResumeOnce, CodesComeAndGoByRequest) {
  options_.grad_accum = 2;
  options_.stage = 3;
  train(options_, 2);
  options_.resume.wanted = true;
  const auto go_on = [&](WireType reduce, std::int64_t steps) {
    options_.wire.reduce = reduce;
    options_.steps = steps;
    options_.resume.allow_changes = false;
    EXPECT_TRUE(names(refused(options_, 2), "--reduce-dtype", "--allow-changes"));
    options_.resume.allow_changes = true;
    EXPECT_EQ(train(options_, 2).losses.size(), 2u);
  };
  go_on(WireType::int8, 6);
  go_on(WireType::same, 8);
}

TEST_F(ResumeOnce, CodedRunsGoOnToTheBitAtOtherStages) {
  options_.grad_accum = 2;
  options_.wire.gather = options_.wire.reduce = WireType::int8;
  options_.stage = 1;
  options_.steps = 6;
  const RunRecord reference = train(options_, 3);
  for (const std::int64_t step : {4, 6}) fs::remove_all(checkpoint_path(checkpoints(), step));
  options_.resume.wanted = true;
  options_.stage = 3;
  const RunRecord record = train(options_, 3);
  EXPECT_EQ(record.losses.size(), 4u);
  EXPECT_EQ(record.hash, reference.hash);
  // Coded weights alone are the same on any number of ranks but one.
  fs::remove_all(checkpoints());
  options_.resume.wanted = false;
  options_.wire.reduce = WireType::same;
  const RunRecord weights = train(options_, 3);
  for (const std::int64_t step : {4, 6}) fs::remove_all(checkpoint_path(checkpoints(), step));
  options_.resume.wanted = true;
  options_.grad_accum = 3;
  EXPECT_EQ(train(options_, 2).hash, weights.hash);
}

TEST_F(ResumeOnce, MeasuredSharesStay) {
  options_.micro_batch = 4;
  options_.grad_accum = 3;
  assign(options_, "--balance", "1,0.25");
  const RunRecord reference = train(options_, 2);
  fs::remove_all(checkpoint_path(checkpoints(), 4));
  // As if these had been measured.
  const fs::path file = checkpoint_path(checkpoints(), 2) / kManifestName;
  Manifest manifest = read_manifest(file.parent_path());
  manifest.options["--balance"] = "auto";
  std::ofstream(file, std::ios::binary) << text_of(manifest);
  options_.resume.wanted = true;
  assign(options_, "--balance", "auto");
  EXPECT_EQ(train(options_, 2).hash, reference.hash);
  EXPECT_EQ(events("plan").at(0).at("balance").at("speeds"), (std::vector<double>{1, 0.25}));
  // Other ranks have other shares.
  options_.grad_accum = 2;
  options_.steps = 6;
  EXPECT_TRUE(names(refused(options_, 3), "--balance: 7, 1 rows", "--allow-changes"));
}

}  // namespace
}  // namespace zeepo
