// --eval-data: the mean loss over its tokens, with the same bits at any stage, placement and number of ranks, and no
// bit of the training changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/train/drawn_runs.h"
#include "zeepo/checkpoint/checkpoint.h"
#include "zeepo/checkpoint/checkpoint_directory.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Evaluated : public DrawnRuns {
 protected:
  static TrainOptions options_for(const std::string& model) {
    TrainOptions options;
    options.model = fs::path(kTestData) / "golden" / model;
    options.data = options.model / "tokens.bin";
    options.eval_data = options.data;
    options.seq_len = 8;
    options.steps = 4;
    options.threads = 1;
    options.schedule.lr = 2e-3;
    return options;
  }
  struct Run {
    RunRecord record;
    std::vector<std::pair<std::int64_t, double>> evals;  // step and loss
    Json plan, last_eval;
  };
  Run evaluated(const TrainOptions& options, int ranks = 1) {
    Run result{train(options, ranks), {}, events("plan").at(0), {}};
    for (const Json& event : events("eval")) {
      result.evals.emplace_back(event.at("step"), event.at("loss"));
      result.last_eval = event;
    }
    return result;
  }
};

// A step without a rate, on all samples in one batch, tells the same mean as its loss.
TEST_F(Evaluated, IsTheMeanOverAllTokens) {
  for (const char* model : {"llama-tiny", "gpt2-tiny"}) {
    TrainOptions options = options_for(model);
    options.order = Order::as_is;
    options.schedule.lr = 0;
    options.optimizer.weight_decay = 0;
    options.dropout = 0;
    options.steps = 1;
    options.eval_samples = 15;
    options.micro_batch = 15;
    const double loss = evaluated(options).record.losses[0];
    for (const std::int64_t micro_batch : {1, 4, 15, 40}) {
      options.micro_batch = micro_batch;  // the last one may be short
      const Run run = evaluated(options, micro_batch == 4 ? 3 : 1);
      ASSERT_EQ(run.evals.size(), 1u);
      EXPECT_NEAR(run.evals[0].second, loss, 1e-6 * loss) << model << ", micro-batch " << micro_batch;
      EXPECT_EQ(run.last_eval.at("tokens"), 15 * 8);
    }
  }
}

TEST_F(Evaluated, ComesEverySoManyStepsAndAfterTheLast) {
  TrainOptions options = options_for("llama-tiny");
  options.steps = 5;
  options.eval_samples = 4;
  const auto steps = [&](std::int64_t every) {
    options.eval_every = every;
    std::vector<std::int64_t> found;
    for (const auto& [step, loss] : evaluated(options).evals) found.push_back(step);
    return found;
  };
  EXPECT_EQ(steps(0), (std::vector<std::int64_t>{5}));
  EXPECT_EQ(steps(2), (std::vector<std::int64_t>{2, 4, 5}));
  EXPECT_EQ(steps(5), (std::vector<std::int64_t>{5}));
  EXPECT_TRUE(names(printed_, "evaluation after step 5: loss ", "perplexity"));
}

TEST_F(Evaluated, GivesTheSameBitsEverywhereAndChangesNone) {
  for (int round = 0; round < 8; ++round) {
    TrainOptions options = options_for(one_of<std::string>({"llama-tiny", "gpt2-tiny", "qwen2-tiny"}));
    options.dtype = one_of<DType>({DType::f32, DType::bf16});
    options.dropout = 0.2f;
    options.clip = one_of<float>({0.0f, 1.0f});
    options.micro_batch = one_of<std::int64_t>({1, 2});
    options.linear_tiles = one_of<std::int64_t>({1, 1, 2});
    if (one_of<int>({0, 1, 2}) == 0) options.freeze = {"*.0.*"};
    options.grad_accum = 6;
    TrainOptions silent = options;
    silent.eval_data.clear();
    const Run without = evaluated(silent);
    options.eval_every = one_of<std::int64_t>({1, 2});
    options.eval_samples = one_of<std::int64_t>({1, 7, 30});
    const Run reference = evaluated(options);
    EXPECT_EQ(reference.record.hash, without.record.hash);
    EXPECT_EQ(reference.record.losses, without.record.losses);
    ASSERT_FALSE(reference.evals.empty());
    for (int run = 0; run < 3; ++run) {
      const int ranks = arrange_all(options, 6);
      const Run arranged = evaluated(options, ranks);
      const std::string what = described(options, ranks);
      EXPECT_EQ(arranged.evals, reference.evals) << what;
      EXPECT_EQ(arranged.record.losses, without.record.losses) << what;
      EXPECT_EQ(arranged.record.norms, without.record.norms) << what;
      EXPECT_EQ(arranged.record.hash, without.record.hash) << what;
      expect_planned(arranged.plan, arranged.record, what);
    }
  }
}

// With the lowest loss in the middle: the learning rate rises until it is far too high.
TEST_F(Evaluated, KeepsTheBestCheckpoint) {
  for (const int ranks : {1, 3}) {
    TrainOptions options = options_for("llama-tiny");
    options.grad_accum = 6 / ranks;
    options.stage = ranks == 1 ? 0 : 3;
    options.steps = 8;
    options.schedule.lr = 5;
    options.schedule.warmup = 100;
    options.eval_every = 1;
    options.checkpoint_dir = files_.path() / "checkpoints";
    options.checkpoint_keep = 1;
    const auto lowest = [](const auto& evals) {
      return *std::ranges::min_element(evals, {}, [](const auto& eval) { return eval.second; });
    };
    const auto saved = [&] {
      std::vector<std::int64_t> steps;
      for (const auto& entry : list_checkpoints(options.checkpoint_dir)) steps.push_back(entry.step);
      return steps;
    };
    const Run whole = evaluated(options, ranks);
    const auto [step, loss] = lowest(whole.evals);
    ASSERT_LT(step, 8) << "the test needs a loss that rises again";
    EXPECT_EQ(saved(), (std::vector<std::int64_t>{step, 8}));
    EXPECT_EQ(best_checkpoint(options.checkpoint_dir), step);
    const Checkpoint best(options.checkpoint_dir / "best");
    EXPECT_EQ(best.manifest().step, step);
    EXPECT_EQ(best.manifest().eval_loss, loss);
    const Checkpoint last(checkpoint_path(options.checkpoint_dir, 8));
    EXPECT_EQ(last.manifest().best->step, step);
    EXPECT_EQ(last.manifest().best->loss, loss);
    // It is known to a run that goes on from a later one, and stays.
    options.steps = 10;
    options.resume.wanted = true;
    const Run more = evaluated(options, ranks);
    ASSERT_GT(lowest(more.evals).second, loss);
    EXPECT_EQ(saved(), (std::vector<std::int64_t>{step, 10}));
    EXPECT_EQ(best_checkpoint(options.checkpoint_dir), step);
    fs::remove_all(options.checkpoint_dir);
  }
}

TEST_F(Evaluated, NeedsDataThatIsThereAndLongEnough) {
  TrainOptions options = options_for("llama-tiny");
  options.eval_data.clear();
  options.eval_every = 2;
  EXPECT_TRUE(names(error_text([&] { Trainer{options}; }), "--eval-every 2", "--eval-data"));
  options.eval_every = 0;
  options.eval_samples = 3;
  EXPECT_TRUE(names(error_text([&] { Trainer{options}; }), "--eval-samples 3", "--eval-data"));
  options.eval_data = files_.path() / "short.bin";
  std::ofstream(options.eval_data) << "abcd";
  EXPECT_TRUE(names(error_text([&] { Trainer{options}; }), "short.bin", "2 tokens"));
  options.eval_data = files_.path() / "absent.bin";
  EXPECT_TRUE(names(error_text([&] { Trainer{options}; }), "absent.bin"));
}

}  // namespace
}  // namespace zeepo
