// --placement auto: only budgets are given, the run keeps within them and computes the bits of the resident run.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/scratch_model.h"
#include "tests/support/units.h"
#include "zeepo/base/error.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

struct Trained {
  Json plan, summary;
  std::string said;
};

class AutoPlacement : public testing::Test {
 protected:
  TrainOptions options() const {
    TrainOptions options = directory_.options();
    options.seq_len = 32;
    options.micro_batch = 4;
    options.steps = 3;
    options.dtype = DType::bf16;
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.device_bytes = 256 * kMiB;
    options.host_bytes = 64 * kMiB;
    return options;
  }
  TrainOptions chosen(std::int64_t device_bytes, std::int64_t host_bytes = 64 * kMiB) const {
    TrainOptions result = options();
    result.choose = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
    result.device_bytes = device_bytes;
    result.host_bytes = host_bytes;
    return result;
  }

  // Each rank's options may differ.
  Trained run_each(const std::function<TrainOptions(int)>& of_rank, int ranks) const {
    Trained result;
    ::testing::internal::CaptureStderr();
    try {
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) { Trainer(of_rank(communicator.rank()), communicator).run(); });
    } catch (...) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    result.said = ::testing::internal::GetCapturedStderr();
    std::ifstream lines(options().log);
    for (std::string line; std::getline(lines, line);) {
      const Json event = Json::parse(line);
      if (event.at("event") == "plan") result.plan = event;
      if (event.at("event") == "summary") result.summary = event;
    }
    return result;
  }
  Trained train(const TrainOptions& given, int ranks = 1) const {
    return run_each([&](int) { return given; }, ranks);
  }
  static std::int64_t peak(const Json& rank, const char* tier) { return rank.at("peak_bytes").at(tier).at("total"); }
  static std::string flags(const Trained& run) { return run.plan.at("placement").at("flags"); }
  static void expect_within(const Trained& run, const TrainOptions& budgets) {
    for (const auto& rank : run.summary.at("ranks")) {
      EXPECT_LE(peak(rank, "device"), budgets.device_bytes);
      EXPECT_LE(peak(rank, "host"), budgets.host_bytes);
      if (budgets.nvme_bytes > 0) {
        EXPECT_LE(peak(rank, "nvme"), budgets.nvme_bytes);
      }
    }
  }

  ScratchModel directory_{128, 6, 512, 1000};
};

TEST_F(AutoPlacement, KeepsToTheBudgetsWithTheBitsOfTheResidentRun) {
  for (const int ranks : {1, 3})
    for (const int stage : {1, 3}) {
      TrainOptions resident = options();
      resident.stage = stage;
      const Trained reference = train(resident, ranks);
      const std::int64_t all = reference.plan.at("device").at("arena_bytes");
      std::vector<std::string> seen;
      for (const double part : {1.0, 0.8, 0.5, 0.3, 0.25}) {
        TrainOptions small = chosen(static_cast<std::int64_t>(part * static_cast<double>(all)));
        small.stage = stage;
        const Trained run = train(small, ranks);
        const auto what = fmt::format("{} ranks, stage {}, {} of {}: {}", ranks, stage, part, all, flags(run));
        EXPECT_EQ(run.summary.at("loss"), reference.summary.at("loss")) << what;
        EXPECT_EQ(run.summary.at("weights_hash"), reference.summary.at("weights_hash")) << what;
        expect_within(run, small);
        EXPECT_TRUE(run.plan.at("placement").at("chosen"));
        EXPECT_NE(run.said.find("placement chosen: " + flags(run)), std::string::npos) << run.said;
        seen.push_back(flags(run));
      }
      EXPECT_NE(seen.front().find("--offload-optimizer none --offload-param none"), std::string::npos);
      EXPECT_NE(seen.back(), seen.front());
    }
}

TEST_F(AutoPlacement, FillsTheDevice) {
  const std::int64_t all = train(options()).plan.at("device").at("arena_bytes");
  constexpr std::int64_t kPieceBytes = 12 * EngineOptions::kPieceAlignment;  // that leave together, of 16-bit states
  for (const double part : {0.9, 0.75, 0.6}) {
    const TrainOptions small = chosen(static_cast<std::int64_t>(part * static_cast<double>(all)));
    const Trained run = train(small);
    EXPECT_GE(run.plan.at("device").at("arena_bytes").get<std::int64_t>(),
              static_cast<std::int64_t>(0.95 * static_cast<double>(small.device_bytes)) - kPieceBytes)
        << part << " " << flags(run);
  }
}

TEST_F(AutoPlacement, GoesOnToFilesWhereTheHostIsFull) {
  const Trained reference = train(options());
  TrainOptions small = chosen(4 * kMiB, 14 * kMiB);
  EXPECT_NE(error_text([&] { train(small); }).find("--nvme-path DIR with"), std::string::npos);
  small.nvme_paths = {directory_.path()};
  small.nvme_bytes = 64 * kMiB;
  const Trained run = train(small);
  EXPECT_NE(flags(run).find("nvme"), std::string::npos) << flags(run);
  EXPECT_EQ(run.summary.at("weights_hash"), reference.summary.at("weights_hash"));
  expect_within(run, small);
}

TEST_F(AutoPlacement, IsRepeatedByTheOptionsItPrints) {
  const TrainOptions small = chosen(9 * kMiB);
  const Trained run = train(small);
  const Json& placement = run.plan.at("placement");
  TrainOptions again = small;
  again.choose = {};
  again.placement.optimizer = {placement.at("optimizer").at("host"), placement.at("optimizer").at("nvme")};
  again.placement.params = {placement.at("params").at("host"), placement.at("params").at("nvme")};
  again.placement.activations = placement.at("activations") == "host" ? Place::host : Place::device;
  again.activation_checkpointing = placement.at("activation_checkpointing");
  again.prefetch_bytes = placement.at("prefetch_bytes");
  const Trained repeated = train(again);
  EXPECT_EQ(flags(repeated), flags(run));
  for (const char* tier : {"device", "host", "nvme"})
    EXPECT_EQ(repeated.plan.at(tier).at("arena_bytes"), run.plan.at(tier).at("arena_bytes"));
  EXPECT_FALSE(repeated.plan.at("placement").at("chosen"));
}

TEST_F(AutoPlacement, PrintsNoShareOfTheStepThatTheHostCannotTake) {
  TrainOptions roomy = chosen(256 * kMiB);
  roomy.host_step_share = 0.5;
  const Trained run = train(roomy);  // nothing leaves the device
  EXPECT_TRUE(names(flags(run), "--offload-optimizer none", "--step-below device"));
  roomy.choose = {};
  EXPECT_TRUE(names(error_text([&] { check(roomy); }), "--step-below 0.5"));
  roomy.host_step_share = 0;
  EXPECT_EQ(train(roomy).summary.at("weights_hash"), run.summary.at("weights_hash"));
}

TEST_F(AutoPlacement, KeepsWhatOptionsPlace) {
  TrainOptions small = chosen(14 * kMiB);
  small.placement.params = {.host = 0.5};
  small.choose.params = false;
  EXPECT_NE(flags(train(small)).find("--offload-param host=0.5"), std::string::npos);
  TrainOptions smaller = chosen(4 * kMiB);
  smaller.choose.optimizer = false;
  EXPECT_TRUE(names(error_text([&] { train(smaller); }), "leave --offload-optimizer to be chosen too"));
}

TEST_F(AutoPlacement, KnowsWhatACacheTakes) {
  const Trained reference = train(options());
  TrainOptions small = chosen(5 * kMiB);
  small.placement.params = {.host = 0.5};
  small.placement.cache = CachePolicy::lru;
  small.choose.params = false;
  small.prefetch_bytes = 500 * kKiB;
  const Trained cached = train(small);
  EXPECT_EQ(cached.summary.at("weights_hash"), reference.summary.at("weights_hash"));
  EXPECT_EQ(cached.summary.at("ranks").at(0).at("peak_bytes").at("device"), cached.plan.at("device").at("bytes"));
  EXPECT_NE(flags(cached).find("--cache-policy lru"), std::string::npos);
}

TEST_F(AutoPlacement, TakesTheSmallestBudgetOfAnyRank) {
  const auto run = run_each(
      [&](int rank) {
        TrainOptions small = chosen(rank == 1 ? 10 * kMiB : 200 * kMiB);
        small.stage = 1;
        return small;
      },
      3);
  for (const auto& rank : run.summary.at("ranks")) EXPECT_LE(peak(rank, "device"), 10 * kMiB);
  EXPECT_EQ(run.plan.at("device").at("budget_bytes"), 10 * kMiB);
}

TEST_F(AutoPlacement, SaysWhatIsMissing) {
  const std::string device = error_text([&] { train(chosen(2 * kMiB)); });
  EXPECT_TRUE(names(device, "--placement auto", "device=", "of 2.00 MiB", "--memory device="));
  const std::string host = error_text([&] { train(chosen(8 * kMiB, 64 * kKiB)); });
  EXPECT_NE(host.find("--memory host="), std::string::npos) << host;
}

// Memory is taken in the order of the dry pass, to the last block: what it finds is enough.
TEST_F(AutoPlacement, ARunNeedsNoMoreThanItsPlan) {
  for (const bool checkpointed : {false, true})
    for (const std::int64_t accumulation : {1, 3})
      for (const Shares& share : {Shares{}, Shares{.host = 0.5}, Shares{.host = 1}}) {
        TrainOptions exact = options();
        exact.grad_accum = accumulation;
        exact.micro_batch = 1;
        exact.placement = {share, share, checkpointed ? Place::host : Place::device};
        exact.activation_checkpointing = checkpointed;
        exact.tune = {.prefetch = false, .pieces = false, .host_share = false};
        const Json plan = train(exact).plan;
        exact.device_bytes = plan.at("device").at("arena_bytes");
        EXPECT_NO_THROW(train(exact)) << checkpointed << " " << accumulation << " " << share.host;
        exact.device_bytes -= 256;
        EXPECT_THROW(train(exact), Error) << checkpointed << " " << accumulation << " " << share.host;
      }
}

TEST_F(AutoPlacement, TakesWhatTheMachineHasWhereNoBudgetIsGiven) {
  TrainOptions any = chosen(0, 0);
  any.nvme_paths = {directory_.path()};
  const Trained run = train(any);
  for (const char* tier : {"device", "host", "nvme"})
    EXPECT_GT(run.plan.at(tier).at("budget_bytes").get<std::int64_t>(), 0) << tier;
  EXPECT_NE(flags(run).find("--offload-optimizer none --offload-param none"), std::string::npos);
}

TEST_F(AutoPlacement, ThePlanHoldsForEveryMicroStepOfACache) {
  struct Case {
    DType dtype;
    double below;
    std::int64_t prefetch_bytes, micro_batch;
  };
  for (const Case& c : {Case{DType::f32, 0.3, 0, 1}, Case{DType::f32, 0.5, kMiB, 4}, Case{DType::bf16, 0.7, kMiB, 1}}) {
    TrainOptions given = options();
    given.dtype = c.dtype;
    given.micro_batch = c.micro_batch;
    given.grad_accum = 5;
    given.prefetch_bytes = c.prefetch_bytes;
    given.placement.params.host = c.below;
    given.placement.cache = CachePolicy::lru;
    given.device_bytes = train(given).plan.at("device").at("arena_bytes");
    EXPECT_NO_THROW((void)train(given)) << name_of(c.dtype) << ", " << c.below << " below";
  }
}

}  // namespace
}  // namespace zeepo
