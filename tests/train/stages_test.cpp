// One data path: no choice of stage or prefetch changes a bit, and the ranks together compute what one rank would.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/golden.h"
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
  const auto directory = std::filesystem::path(ZEEPO_TEST_DATA) / "golden" / name;
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
  ThreadsWorld world(2);
  try {
    run(world, [&](Communicator& communicator) {
      auto options = golden_options("llama-tiny", 1 + communicator.rank());
      Trainer(options, communicator).run();
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch and steps"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace zeepo
