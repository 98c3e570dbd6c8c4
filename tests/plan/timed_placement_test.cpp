// --placement auto by predicted time: the run has what a plan recommends, within the budgets, with the same bits.
#include "zeepo/plan/timed_placement.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/scratch_model.h"
#include "tests/support/units.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/plan/hardware.h"
#include "zeepo/plan/recommended.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using PlainJson = nlohmann::json;

// Whose links carry so many bytes a second.
PlanMachine machine(double link) {
  SimulatedRates rates;
  rates.products_fp32 = rates.products_16bit = rates.products_fp8 = rates.attention = 1e11;
  rates.device_memory = 2e10;
  rates.kernel_seconds = 1e-7;
  rates.to_device = rates.to_host = link;
  rates.host_steps = 1e9;
  rates.within_node = rates.between_nodes = 1e10;
  rates.collective_seconds = 1e-6;
  PlanMachine machine;
  machine.source = "zeepo probe of 2026-11-18";
  machine.rates = rates;
  machine.date = "2026-11-18";
  return machine;
}
const PlanMachine kSlow = machine(1e6), kFast = machine(1e13);

struct Trained {
  PlainJson placement, summary;
  std::string said;
  std::string flags() const { return placement.at("flags"); }
};

class TimedPlacement : public testing::Test {
 protected:
  TrainOptions options() const {
    TrainOptions options = directory_.options();
    options.seq_len = 32;
    options.micro_batch = 2;
    options.steps = 3;
    options.dtype = DType::bf16;
    options.piece_elements = EngineOptions::kPieceAlignment;
    options.device_bytes = 256 * kMiB;
    options.host_bytes = 64 * kMiB;
    options.choose = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
    return options;
  }
  RunSetup setup(int ranks, int stage) const {
    TrainOptions roomy = options();
    roomy.stage = stage;
    return make_setup(roomy, {.rank = 0, .ranks = ranks, .ranks_on_node = ranks});
  }
  std::int64_t device_bytes(const RunSetup& setup, const std::string& name) const {
    for (const ExactPlan& plan : usual_plans(setup, {exact_room(setup)}))
      if (plan.name == name) return plan.memory.bytes[0];
    throw Error("no placement {}", name);
  }
  // Where recomputation is enough, and so is a part of the optimizer's state in host memory.
  TrainOptions tight(int ranks, int stage) const {
    const RunSetup roomy = setup(ranks, stage);
    TrainOptions options = roomy.options;
    const std::int64_t enough = device_bytes(roomy, "recompute activations");
    options.device_bytes = enough + (device_bytes(roomy, "resident") - enough) / 8;
    EXPECT_LT(device_bytes(roomy, "optimizer host"), options.device_bytes);
    return options;
  }

  // Rank 0 alone knows the machine.
  Trained train(const TrainOptions& options, const PlanMachine& machine, int ranks = 1) const {
    return train_by(options, ranks, [&](const RunSetup& setup, const auto& rooms, Communicator& communicator) {
      return placement_on(communicator.rank() == 0 ? machine : PlanMachine{}, setup, rooms, communicator);
    });
  }
  Trained train_by(const TrainOptions& options, int ranks, const ChoosePlacement& choose) const {
    Trained result;
    ::testing::internal::CaptureStderr();
    try {
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) { Trainer(options, communicator, choose).run(); });
    } catch (...) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    result.said = ::testing::internal::GetCapturedStderr();
    std::ifstream lines(options.log);
    for (std::string line; std::getline(lines, line);) {
      const PlainJson event = PlainJson::parse(line);
      if (event.at("event") == "plan") result.placement = event.at("placement");
      if (event.at("event") == "summary") result.summary = event;
    }
    return result;
  }

  ScratchModel directory_{128, 6, 512, 1000};
};

TEST_F(TimedPlacement, TakesWhatIsFasterOnThisMachineWithTheSameBits) {
  using Case = std::pair<int, int>;
  for (const auto& [ranks, stage] : {Case{1, 0}, Case{1, 3}, Case{3, 2}, Case{3, 3}}) {
    const TrainOptions options = tight(ranks, stage);
    const Trained by_bytes = train(options, kFast, ranks), by_time = train(options, kSlow, ranks);
    const std::string what = fmt::format("{} ranks, stage {}: {}", ranks, stage, by_time.said);
    EXPECT_TRUE(names(by_bytes.flags(), "--offload-optimizer host=", "--offload-param none")) << what;
    EXPECT_EQ(by_bytes.placement.at("by"), "bytes");
    EXPECT_TRUE(names(by_bytes.said, "by bytes: the fastest tiers first", "zeepo probe of 2026-11-18"));
    EXPECT_TRUE(names(by_time.flags(), "--offload-optimizer none", "--activation-checkpointing")) << what;
    EXPECT_EQ(by_time.placement.at("by"), "time");
    EXPECT_EQ(by_time.placement.at("probe"), "2026-11-18");
    EXPECT_GT(by_time.placement.at("step_seconds"), 0);
    EXPECT_TRUE(names(by_time.said, "placement chosen: " + by_time.flags(), "by predicted time: a step", "s with",
                      "zeepo probe of 2026-11-18"));
    EXPECT_EQ(by_time.summary.at("weights_hash"), by_bytes.summary.at("weights_hash")) << what;
    for (const auto& rank : by_time.summary.at("ranks"))
      EXPECT_LE(rank.at("peak_bytes").at("device").at("total"), options.device_bytes) << what;
  }
}

TEST_F(TimedPlacement, IsWhatAPlanRecommends) {
  for (const PlanMachine* machine : {&kSlow, &kFast})
    for (const double part : {1.0, 0.9, 0.6, 0.4}) {
      TrainOptions options = this->options();
      options.device_bytes =
          static_cast<std::int64_t>(part * static_cast<double>(device_bytes(setup(1, 0), "resident")));
      const RunSetup asked = exact_setup({.options = options});
      const RankRoom room = exact_room(asked);
      const Recommended planned = recommend(asked, room, *machine, exact_plans(asked, room, *machine));
      ASSERT_TRUE(planned.fits);
      EXPECT_EQ(train(options, *machine).flags(), planned.setup.flags()) << part << " " << machine->rates->to_device;
    }
}

TEST_F(TimedPlacement, GoesByBytesWhereNothingWasMeasured) {
  const TestDirectory cache;
  const char* before = std::getenv("XDG_CACHE_HOME");
  const std::string kept = before ? before : "";
  ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  const TrainOptions options = tight(2, 1);
  const Trained run = train_by(options, 2, placement_by_probe);
  before ? ::setenv("XDG_CACHE_HOME", kept.c_str(), 1) : ::unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(run.flags(), train_by(options, 2, placement_by_bytes).flags());
  EXPECT_EQ(run.placement.at("by"), "bytes");
  EXPECT_FALSE(run.placement.contains("probe"));
  EXPECT_TRUE(names(run.said, "by bytes: the fastest tiers first; mpirun -n 2 zeepo probe would let times decide"));
}

TEST_F(TimedPlacement, SaysWhatAProbeHasNotMeasured) {
  PlanMachine without_ranks = kSlow;
  without_ranks.rates->within_node = without_ranks.rates->between_nodes = 0;
  const Trained run = train(tight(2, 1), without_ranks, 2);
  EXPECT_EQ(run.placement.at("by"), "bytes");
  EXPECT_TRUE(names(run.said, "has not measured all that a step uses"));
}

TEST_F(TimedPlacement, KeepsWhatOptionsPlaceAndUsesNoFilesThatHaveNoDirectory) {
  TrainOptions fixed = tight(1, 0);
  fixed.choose.optimizer = false;
  fixed.placement.optimizer = {.host = 1};
  EXPECT_TRUE(names(train(fixed, kSlow).flags(), "--offload-optimizer host ", "--offload-param none"));
  PlanMachine fast_files = kSlow;
  fast_files.rates->read = fast_files.rates->write = 1e13;
  TrainOptions crowded = tight(1, 0);
  crowded.host_bytes = 8 * kMiB;
  EXPECT_EQ(train(crowded, fast_files).flags().find("nvme"), std::string::npos);
}

TEST_F(TimedPlacement, FailsAsBytesDoWhereNothingFits) {
  TrainOptions options = tight(2, 1);
  options.device_bytes = 2 * kMiB;
  const auto failure = [&](const ChoosePlacement& choose) {
    const std::string text = error_text([&] { train_by(options, 2, choose); });
    return text.substr(std::min(text.find("train: "), text.size()));  // any rank may be the first to say it
  };
  const std::string by_bytes = failure(placement_by_bytes);
  EXPECT_TRUE(names(by_bytes, "--placement auto", "--memory device="));
  EXPECT_EQ(failure([](const RunSetup& setup, const auto& rooms, Communicator& ranks) {
              return placement_on(kSlow, setup, rooms, ranks);
            }),
            by_bytes);
}

TEST_F(TimedPlacement, ResumesFromTheOtherChoice) {
  TrainOptions options = tight(2, 2);
  options.steps = 4;
  const Trained straight = train(options, kFast, 2);
  options.checkpoint_dir = directory_.path() / "checkpoints";
  options.steps = 2;
  (void)train(options, kFast, 2);
  options.steps = 4;
  options.resume.wanted = true;
  const Trained resumed = train(options, kSlow, 2);
  EXPECT_NE(resumed.flags(), straight.flags());
  EXPECT_EQ(resumed.summary.at("weights_hash"), straight.summary.at("weights_hash"));
}

// A block of 1.5 GiB is not fetched ahead with the default --prefetch: all ranks take the one that rank 0 finds.
TEST(TimedPlacementOfLargeUnits, FetchesThemAhead) {
  TrainOptions options;
  options.backend = Backend::cuda;
  options.dtype = DType::f16;
  options.seq_len = 1024;
  options.stage = 3;
  options.device_bytes = 64 * kGiB;
  options.host_bytes = 64 * kGiB;
  options.choose = {.params = true, .optimizer = true, .activations = true, .prefetch = true};
  PlanMachine machine = described_machine(find_hardware("dgx2-v100"));
  machine.rates->within_node = 2e10;
  const auto prefetch_of = [&](const TrainOptions& asked) {
    constexpr int kRanks = 2;
    std::vector<std::int64_t> prefetch(kRanks);
    ThreadsWorld world(kRanks);
    run(world, [&](Communicator& ranks) {
      const RunSetup setup = make_setup(asked, {.rank = ranks.rank(), .ranks = kRanks, .ranks_on_node = kRanks},
                                        config_of({2, 8192, 64}, 0, asked.seq_len));
      const std::vector<RankRoom> rooms(kRanks, exact_room(setup));
      const PlacementChoice choice = placement_on(ranks.rank() == 0 ? machine : PlanMachine{}, setup, rooms, ranks);
      prefetch[static_cast<std::size_t>(ranks.rank())] = choice.setup.options.prefetch_bytes;
    });
    EXPECT_EQ(prefetch[0], prefetch[1]);
    return prefetch[0];
  };
  EXPECT_GE(prefetch_of(options), std::int64_t{2} * 12 * 8192 * 8192);
  options.choose.prefetch = false;
  EXPECT_EQ(prefetch_of(options), TrainOptions{}.prefetch_bytes);
}

}  // namespace
}  // namespace zeepo
