// --freeze: weights that stay as they are have no gradient, no optimizer state and no bytes for either, and the others
// are trained as PyTorch trains them, with the same bits at any stage, placement and number of ranks.
#include <gtest/gtest.h>

#include <map>

#include "tests/support/errors.h"
#include "tests/support/places.h"
#include "tests/train/drawn_runs.h"
#include "zeepo/model/safetensors.h"
#include "zeepo/train/option_table.h"

namespace zeepo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

class Freeze : public DrawnRuns {
 protected:
  static TrainOptions golden_options(const std::string& name) {
    TrainOptions options;
    options.model = fs::path(kTestData) / name;
    options.data = options.model / "tokens.bin";
    options.seq_len = 48;
    options.micro_batch = 4;
    options.order = Order::as_is;
    options.threads = 1;
    options.steps = 12;
    options.schedule.lr = 2e-3;
    options.optimizer.eps = 1e-6f;
    return options;
  }
  std::map<std::string, std::vector<float>> weights_of(const fs::path& directory) const {
    const SafetensorsFile file(directory / "model.safetensors");
    std::map<std::string, std::vector<float>> weights;
    for (const auto& entry : file.entries()) {
      auto& values = weights[entry.name];
      values.resize(static_cast<std::size_t>(entry.elements));
      file.read(entry, 0, values);
    }
    return weights;
  }
  std::map<std::string, std::vector<float>> trained_weights(TrainOptions options, int ranks = 1) {
    options.output = files_.path() / "trained";
    fs::remove_all(options.output);
    train(options, ranks);
    return weights_of(options.output);
  }
  Json plan() const { return events("plan").at(0); }
  static std::string described(const TrainOptions& o, int ranks) {
    return fmt::format("{}, --freeze {}, tiles {}, blocks {}", DrawnRuns::described(o, ranks), fmt::join(o.freeze, ","),
                       o.linear_tiles, o.blocks_per_unit);
  }
};

TEST_F(Freeze, TrainsTheRestAsPyTorchDoes) {
  const Json goldens = Json::parse(read_text(fs::path(kTestData) / "freeze.json"));
  for (const Json& golden : goldens.at("runs")) {
    TrainOptions options = golden_options(golden.at("model"));
    options.freeze = golden.at("freeze").get<std::vector<std::string>>();
    for (const std::int64_t tiles : {1, 3}) {
      options.linear_tiles = tiles;
      const RunRecord record = train(options);
      EXPECT_EQ(plan().at("trained_params"), golden.at("trained")) << golden.at("model");
      ASSERT_EQ(record.losses.size(), golden.at("losses").size());
      for (std::size_t i = 0; i < record.losses.size(); ++i) {
        const double loss = golden.at("losses")[i], norm = golden.at("grad_norms")[i];
        EXPECT_NEAR(record.losses[i], loss, 1e-5 * loss) << golden.at("model") << " step " << i + 1;
        EXPECT_NEAR(record.norms[i], norm, 1e-4 * norm) << golden.at("model") << " step " << i + 1;
      }
    }
  }
}

// One plain SGD step moves each weight by its gradient, which does not depend on what else is trained.
TEST_F(Freeze, OneStepMovesTrainedWeightsAsWithoutAndNoOthers) {
  for (const auto& [model, pattern] : std::vector<std::pair<std::string, std::string>>{
           {"golden/qwen2-tiny", "*q_proj*"}, {"golden/gpt2-tiny", "transformer.w*"}, {"golden/llama-tiny", "*.1.*"}}) {
    TrainOptions options = golden_options(model);
    options.steps = 1;
    options.clip = 0;
    options.optimizer = {.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0};
    options.micro_batch = 1;
    options.grad_accum = 6;
    const auto before = weights_of(options.model), all = trained_weights(options);
    options.freeze = {pattern};
    options.optimizer.weight_decay = 0;
    const int ranks = arrange_all(options, 6);
    const auto some = trained_weights(options, ranks);
    int frozen = 0;
    for (const auto& [name, values] : some) {
      const bool stays = values == before.at(name);
      frozen += stays;
      EXPECT_EQ(values, stays ? before.at(name) : all.at(name)) << name << ": " << described(options, ranks);
      EXPECT_NE(all.at(name), before.at(name)) << name;
    }
    EXPECT_GT(frozen, 0);
    EXPECT_LT(frozen, static_cast<int>(some.size()));
  }
}

TEST_F(Freeze, GivesTheSameBitsEverywhere) {
  for (int round = 0; round < 12; ++round) {
    const auto model = one_of<std::string>({"golden/llama-tiny", "golden/gpt2-tiny", "golden/qwen2-tiny"});
    TrainOptions options = golden_options(model);
    options.micro_batch = 1;
    options.seq_len = 8;
    options.steps = 3;
    options.dropout = one_of<float>({0.0f, 0.2f});
    options.dtype = one_of<DType>({DType::f32, DType::bf16, DType::f16});
    options.loss_scale.initial = 1024;
    options.clip = one_of<float>({0.0f, 1.0f});
    options.optimizer.type = one_of<OptimizerType>({OptimizerType::adamw, OptimizerType::sgd});
    options.linear_tiles = one_of<std::int64_t>({1, 1, 2});
    options.blocks_per_unit = one_of<std::int64_t>({1, 2});
    options.freeze =
        model == "golden/gpt2-tiny"
            ? one_of<std::vector<std::string>>({{"transformer.wte.weight", "*.h.0.*"}, {"*bias"}, {"*.h.*"}})
            : one_of<std::vector<std::string>>(
                  {{"*.q_proj.*"}, {"*embed*", "*.layers.0.*"}, {"*.up_proj.*", "*norm*"}, {"*.layers.1.*"}});
    options.grad_accum = 6;
    const RunRecord reference = train(options);
    for (int run = 0; run < 3; ++run) {
      TrainOptions arranged = options;
      const int ranks = arrange_all(arranged, 6);
      const RunRecord record = train(arranged, ranks);
      EXPECT_EQ(record.hash, reference.hash) << described(arranged, ranks);
      EXPECT_EQ(record.losses, reference.losses) << described(arranged, ranks);
      EXPECT_EQ(record.norms, reference.norms) << described(arranged, ranks);
      expect_planned(plan(), record, described(arranged, ranks));
    }
  }
}

double total(const RunRecord& record, const char* kind) {
  double bytes = 0;
  for (const Json& rank : record.ranks)
    for (const char* place : {"device", "host", "nvme"})
      bytes += rank.at("peak_bytes").at(place).at(kind).get<double>();
  return bytes;
}

TEST_F(Freeze, TakesNoBytesForGradientsAndStateAndSendsNone) {
  for (const char* pattern : {"*.layers.0.*", "*.q_proj.*", "*embed*"})
    for (const auto& optimizer : std::vector<Shares>{{}, {.host = 1}}) {
      TrainOptions options = golden_options("golden/llama-tiny");
      options.steps = 2;
      options.micro_batch = 1;
      options.stage = 3;
      options.placement.optimizer = optimizer;
      const RunRecord all = train(options, 3);
      options.freeze = {pattern};
      const RunRecord some = train(options, 3);
      const double count = plan().at("params"), trained = plan().at("trained_params"), frozen = count - trained;
      ASSERT_GT(frozen, 0);
      const double padding = 3 * 128 * 8 * 16;          // of units, of which there are some more
      const double each = optimizer.host > 0 ? 12 : 8;  // a copy of the weights where they live apart
      EXPECT_NEAR(total(some, "optimizer"), each * trained, padding) << pattern;
      EXPECT_LT(total(some, "optimizer"), total(all, "optimizer") - each * frozen + padding) << pattern;
      EXPECT_LT(total(some, "grads"), total(all, "grads") - 4 * frozen + padding) << pattern;
      for (const Json& rank : some.ranks)
        EXPECT_NEAR(rank.at("comm_bytes").at("reduce_scatter").get<double>(), 4 * trained * 2 / 3, padding) << pattern;
    }
}

// The backward pass ends above them: it gathers them no more.
TEST_F(Freeze, LowestBlocksHaveNoBackwardPass) {
  for (const bool checkpointing : {false, true}) {
    TrainOptions options = golden_options("golden/llama-tiny");
    options.steps = 2;
    options.micro_batch = 1;
    options.stage = 3;
    options.prefetch_bytes = 0;
    options.activation_checkpointing = checkpointing;
    const auto gathered = [](const RunRecord& record) {
      return record.ranks[0].at("comm_bytes").at("all_gather").get<double>();
    };
    const double all = gathered(train(options, 2));
    options.freeze = {"*embed*", "*.layers.0.*"};
    const double lowest = gathered(train(options, 2));
    const double frozen = plan().at("params").get<double>() - plan().at("trained_params").get<double>();
    EXPECT_NEAR(all - lowest, frozen * 4 / 2, 0.05 * frozen) << checkpointing;
    options.freeze = {"*.layers.1.*"};  // gradients pass through them
    EXPECT_NEAR(gathered(train(options, 2)), all, 0.05 * frozen) << checkpointing;
  }
}

TEST_F(Freeze, SaysWhatIsWrong) {
  TrainOptions options = golden_options("golden/llama-tiny");
  const auto fault = [&](std::vector<std::string> patterns) {
    options.freeze = std::move(patterns);
    return error_text([&] { Trainer{options}; });
  };
  EXPECT_TRUE(names(fault({"lm_heads.*"}), "--freeze lm_heads.*", "model.embed_tokens.weight", "matches none"));
  EXPECT_TRUE(names(fault({"model.*", "*"}), "--freeze model.*,*", "nothing is left to train"));
  EXPECT_TRUE(names(error_text([&] { assign(options, "--freeze", "a,,b"); }), "--freeze a,,b", "empty pattern"));
}

// From a checkpoint with others frozen: those that are trained from now on begin with no moments.
TEST_F(Freeze, ResumesWithOtherWeightsFrozen) {
  TrainOptions options = golden_options("golden/qwen2-tiny");
  options.micro_batch = 1;
  options.grad_accum = 6;
  options.steps = 2;
  options.freeze = {"*.q_proj.*"};
  options.checkpoint_dir = files_.path() / "checkpoints";
  const auto original = weights_of(options.model), first = trained_weights(options, arrange_all(options, 6));
  const std::string q = "model.layers.0.self_attn.q_proj.weight", k = "model.layers.0.self_attn.k_proj.weight";
  EXPECT_EQ(first.at(q), original.at(q));
  EXPECT_NE(first.at(k), original.at(k));
  options.steps = 4;
  options.resume.wanted = true;
  options.freeze = {"*.k_proj.*"};
  EXPECT_TRUE(names(error_text([&] { train(options); }), "--freeze *.q_proj.*, now *.k_proj.*", "--allow-changes"));
  options.resume.allow_changes = true;
  const auto other = trained_weights(options, arrange_all(options, 6));
  EXPECT_NE(other.at(q), original.at(q));
  EXPECT_EQ(other.at(k), first.at(k));
  options.steps = 6;
  options.freeze = {};
  const auto last = trained_weights(options, arrange_all(options, 6));
  EXPECT_NE(last.at(q), other.at(q));
  EXPECT_NE(last.at(k), other.at(k));
}

}  // namespace
}  // namespace zeepo
