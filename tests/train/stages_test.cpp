// One data path: no choice of stage or prefetch changes a bit, and the ranks together compute what one rank would.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/golden.h"
#include "tests/support/places.h"
#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

struct Record {
  std::vector<double> losses, norms;
  Json summary;
  std::string hash() const { return summary.at("weights_hash"); }
  Json rank(std::size_t r) const { return summary.at("ranks").at(r); }
  std::int64_t kept(std::size_t r) const {
    const Json bytes = rank(r).at("peak_bytes").at("device");
    return bytes.at("params").get<std::int64_t>() + bytes.at("grads").get<std::int64_t>() +
           bytes.at("optimizer").get<std::int64_t>();
  }
  std::int64_t sent(std::size_t r) const {
    const Json bytes = rank(r).at("comm_bytes");
    return bytes.at("all_gather").get<std::int64_t>() + bytes.at("reduce_scatter").get<std::int64_t>();
  }
};

TrainOptions golden_options(const std::string& name, std::int64_t micro_batch) {
  const auto directory = std::filesystem::path(kTestData) / "golden" / name;
  TrainOptions options;
  options.model = directory;
  options.data = directory / "tokens.bin";
  options.seq_len = 48;
  options.micro_batch = micro_batch;
  options.steps = 6;
  options.order = Order::as_is;
  options.threads = 1;
  options.schedule.lr = 2e-3;
  options.optimizer.eps = 1e-6f;
  return options;
}

Record train(TrainOptions options, int ranks) {
  static int count = 0;
  const auto log =
      std::filesystem::temp_directory_path() / fmt::format("zeepo-stages-{}-{}.jsonl", ::getpid(), ++count);
  options.log = log.string();
  testing::internal::CaptureStderr();
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  testing::internal::GetCapturedStderr();
  std::istringstream lines(read_text(log));
  std::filesystem::remove(log);
  Record result;
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "step") {
      result.losses.push_back(event.at("loss"));
      result.norms.push_back(event.at("grad_norm"));
    } else if (event.at("event") == "summary") {
      result.summary = event;
    }
  }
  return result;
}

void expect_same(const Record& run, const Record& reference, const std::string& what) {
  EXPECT_EQ(run.losses, reference.losses) << what;
  EXPECT_EQ(run.norms, reference.norms) << what;
  EXPECT_EQ(run.hash(), reference.hash()) << what;
}

class Stages : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stages, ::testing::Values(1, 2, 3, 4, 7));

TEST_P(Stages, AllGiveTheSameBits) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t accumulation : {1, 2}) {
      auto options = golden_options("qwen2-tiny", 1);  // a tied head
      options.dtype = dtype;
      options.grad_accum = accumulation;
      const Record reference = train(options, GetParam());
      for (const int stage : {1, 2, 3})
        for (const std::int64_t prefetch : {std::int64_t{0}, std::int64_t{1} << 14, std::int64_t{1} << 30}) {
          options.stage = stage;
          options.prefetch_bytes = prefetch;
          expect_same(
              train(options, GetParam()), reference,
              fmt::format("stage {}, prefetch {}, {}, accumulation {}", stage, prefetch, name_of(dtype), accumulation));
        }
    }
}

// Without clipping shards are stepped in the backward pass; a clip that nothing reaches steps after it.
TEST_P(Stages, StepsInTheBackwardPassGiveTheSameBits) {
  auto options = golden_options("qwen2-tiny", 1);
  options.dtype = DType::bf16;
  for (const MomentType moments : {MomentType::fp32, MomentType::bf16, MomentType::eight_bit})
    for (const int stage : {0, 1, 2, 3}) {
      options.stage = stage;
      options.optimizer.moments = moments;
      options.clip = 1e30f;
      const Record after = train(options, GetParam());
      options.clip = 0;
      const Record within = train(options, GetParam());
      expect_same(within, after, fmt::format("stage {}", stage));
      const auto grads = [](const Record& run) { return run.rank(0).at("peak_bytes").at("device").at("grads"); };
      EXPECT_GT(grads(after), 0);
      if (stage > 0 || GetParam() == 1) {
        EXPECT_EQ(grads(within), 0) << stage;
      }
    }
}

TEST_P(Stages, ComputeWhatOneRankDoes) {
  for (const char* model : {"gpt2-tiny", "qwen3-tiny"}) {
    const int ranks = GetParam();
    const Record alone = train(golden_options(model, ranks), 1);
    for (const int stage : {0, 3}) {
      auto options = golden_options(model, 1);
      options.stage = stage;
      const Record together = train(options, ranks);
      for (std::size_t i = 0; i < alone.losses.size(); ++i) {
        EXPECT_NEAR(together.losses[i], alone.losses[i], 1e-5 * alone.losses[i]) << model << " step " << i;
        EXPECT_NEAR(together.norms[i], alone.norms[i], 1e-4 * alone.norms[i]) << model << " step " << i;
      }
    }
  }
}

TEST(Shards, KeepAndSendWhatTheyPromise) {
  for (const DType dtype : {DType::bf16, DType::f32})
    for (const int ranks : {1, 2, 4})
      for (const int stage : {0, 1, 2, 3}) {
        auto options = golden_options("llama-tiny", 1);
        options.dtype = dtype;
        options.stage = stage;
        const Record run = train(options, ranks);
        const double psi = run.summary.at("params"), n = ranks, width = static_cast<double>(size_of(dtype));
        const double optimizer = dtype == DType::f32 ? 8 : 12;
        const double bytes = stage == 0   ? (2 * width + optimizer) * psi
                             : stage == 1 ? 2 * width * psi + optimizer * psi / n
                             : stage == 2 ? width * psi + (width + optimizer) * psi / n
                                          : (2 * width + optimizer) * psi / n;
        const double padding = 128 * 4 * 16 * (ranks + 12);  // what alignment costs in a model this small
        const double elements = (stage == 3 ? 3 : 2) * psi * (n - 1) / n;
        for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) {
          EXPECT_LE(static_cast<double>(run.kept(r)), 1.01 * bytes + padding) << "stage " << stage << " of " << ranks;
          EXPECT_LE(static_cast<double>(run.sent(r)), 1.01 * elements * width + padding) << "stage " << stage;
          EXPECT_GE(static_cast<double>(run.sent(r)), 0.6 * elements * width) << "stage " << stage << " of " << ranks;
        }
      }
}

TEST(Ranks, ThatDifferAreFoundAtTheStart) {
  const auto scratch = std::filesystem::temp_directory_path() / fmt::format("zeepo-differ-{}", ::getpid());
  std::filesystem::create_directories(scratch);
  auto config = Json::parse(read_text(golden_options("llama-tiny", 1).model / "config.json"));
  config["rms_norm_eps"] = 1e-3;  // the same tensors
  std::ofstream(scratch / "config.json") << config.dump();
  std::filesystem::copy_file(golden_options("llama-tiny", 1).data, scratch / "tokens.bin");
  std::filesystem::resize_file(scratch / "tokens.bin", 1000);

  const std::vector<std::pair<const char*, std::function<void(TrainOptions&)>>> differences{
      {"--micro-batch", [](TrainOptions& o) { o.micro_batch = 2; }},
      {"--grad-accum", [](TrainOptions& o) { o.grad_accum = 2; }},
      {"--seq-len", [](TrainOptions& o) { o.seq_len = 24; }},
      {"--steps", [](TrainOptions& o) { o.steps = 7; }},
      {"the model's tensors", [](TrainOptions& o) { o.model = golden_options("qwen3-tiny", 1).model; }},
      {"config.json", [&](TrainOptions& o) { o.model = scratch; }},
      {"--from-scratch", [](TrainOptions& o) { o.from_scratch = true; }},
      {"the number of tokens", [&](TrainOptions& o) { o.data = scratch / "tokens.bin"; }},
      {"--no-shuffle", [](TrainOptions& o) { o.order = Order::shuffled; }},
      {"--stage", [](TrainOptions& o) { o.stage = 1; }},
      {"--dtype", [](TrainOptions& o) { o.dtype = DType::bf16; }},
      {"--seed", [](TrainOptions& o) { o.seed = 1; }},
      {"--lr", [](TrainOptions& o) { o.schedule.lr = 1; }},
      {"--warmup", [](TrainOptions& o) { o.schedule.warmup = 1; }},
      {"--clip", [](TrainOptions& o) { o.clip = 2; }},
      {"--decay", [](TrainOptions& o) { o.decay = Decay::matrices; }},
      {"--betas", [](TrainOptions& o) { o.optimizer.beta2 = 0.5f; }},
      {"--optimizer", [](TrainOptions& o) { o.optimizer.type = OptimizerType::sgd; }},
      {"--dropout", [](TrainOptions& o) { o.dropout = 0.1f; }},
      {"--prefetch", [](TrainOptions& o) { o.prefetch_bytes = 0; }},
      {"--blocks-per-unit", [](TrainOptions& o) { o.blocks_per_unit = 2; }},
      {"--reduce", [](TrainOptions& o) { o.reduce = Reduce::last; }},
      {"--output", [&](TrainOptions& o) { o.output = scratch / "out"; }},
  };
  for (const auto& difference : differences) {
    std::vector<std::string> texts(3);
    ThreadsWorld world(3);
    EXPECT_THROW(run(world,
                     [&](Communicator& communicator) {
                       auto options = golden_options("llama-tiny", 1);
                       if (communicator.rank() == 2) difference.second(options);
                       auto& text = texts[static_cast<std::size_t>(communicator.rank())];
                       text = error_text([&] { Trainer(options, communicator); });
                       throw Error("{}", text);
                     }),
                 Error);
    for (const auto& text : texts)
      EXPECT_TRUE(names(text, "the ranks differ in", difference.first, "rank 0 has", "rank 2 has"));
  }
  std::filesystem::remove_all(scratch);
}

// What is saved by several ranks is what one saves: at a rate of 0 the weights are those that were read.
TEST(Ranks, SaveTheSameFilesAsOne) {
  const auto scratch = std::filesystem::temp_directory_path() / fmt::format("zeepo-saved-{}", ::getpid());
  const auto saved = [&](int ranks, int stage, DType dtype) {
    auto options = golden_options("qwen2-tiny", 3 / ranks);
    options.schedule.lr = 0;
    options.steps = 2;
    options.stage = stage;
    options.dtype = dtype;
    options.output = scratch / fmt::format("{}-{}-{}", ranks, stage, name_of(dtype));
    (void)train(options, ranks);
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(options.output))
      files[entry.path().filename()] = read_text(entry.path());
    return files;
  };
  std::filesystem::create_directories(scratch);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const auto one = saved(1, 0, dtype);
    EXPECT_TRUE(one.contains("model.safetensors"));
    for (const int stage : {0, 1, 3}) EXPECT_TRUE(saved(3, stage, dtype) == one) << "stage " << stage;
  }
  std::filesystem::remove_all(scratch);
}

}  // namespace
}  // namespace zeepo
