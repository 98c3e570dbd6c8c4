// What a run says that its last step has moved: all of it, the update too, and no other step's.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/scratch_model.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

class Figures : public testing::Test {
 protected:
  // Each rank's "comm_bytes", "link_bytes" and "io_bytes".
  Json of_last_step(TrainOptions options, int ranks, std::int64_t steps) const {
    options.steps = steps;
    ::testing::internal::CaptureStderr();
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    ::testing::internal::GetCapturedStderr();
    Json summary;
    std::ifstream lines(options.log);
    for (std::string line; std::getline(lines, line);) summary = Json::parse(line);
    Json figures;
    for (const Json& rank : summary.at("ranks")) {
      Json& own = figures.emplace_back();
      for (const char* key : {"comm_bytes", "link_bytes", "io_bytes"}) own[key] = rank.at(key);
    }
    return figures;
  }
  // Nothing is fetched ahead, so that the first step fetches as often as later ones.
  TrainOptions options(int stage, const Shares& optimizer, const Shares& params) const {
    TrainOptions options = model_.options();
    options.seq_len = 16;
    options.micro_batch = 1;
    options.stage = stage;
    options.prefetch_bytes = 0;
    options.placement.optimizer = optimizer;
    options.placement.params = params;
    options.nvme_paths = {model_.path()};
    return options;
  }

  ScratchModel model_{64, 3, 128, 1000};
};

constexpr Shares kHost{.host = 1}, kNvme{.nvme = 1}, kHalf{.host = 0.5};

TEST_F(Figures, OfARunOfOneStepAreThoseOfAnyLaterStep) {
  for (const int ranks : {1, 3})
    for (const int stage : {0, 1, 3})
      for (const Shares& optimizer : {Shares{}, kHost, kNvme, kHalf})
        for (const Shares& params : {Shares{}, kNvme}) {
          const TrainOptions given = options(stage, optimizer, params);
          const Json first = of_last_step(given, ranks, 1);
          EXPECT_EQ(first, of_last_step(given, ranks, 3))
              << ranks << " ranks, stage " << stage << ", " << optimizer.host << " " << optimizer.nvme << " "
              << params.nvme;
        }
}

// Moments, and the weights' low bits where there are any, are read and written once a step; gradients too.
TEST_F(Figures, CountTheFilesOfTheOnlyUpdate) {
  const TrainOptions given = options(0, kNvme, {});
  const Json io = of_last_step(given, 1, 1).at(0).at("io_bytes");
  std::int64_t parameters = 0;
  const RunSetup setup = make_setup(given, {});
  for (const auto& named : named_parameters(*setup.model)) parameters += named.parameter->elements();
  EXPECT_GE(io.at("read").get<std::int64_t>(), 3 * 4 * parameters);
  EXPECT_GE(io.at("write").get<std::int64_t>(), 3 * 4 * parameters);
}

}  // namespace
}  // namespace zeepo
