// What a rank may use of each tier. No byte of a machine, and none of a disk, is given away twice.
#include "zeepo/budget/budgets.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/scratch_model.h"
#include "tests/support/units.h"
#include "zeepo/base/machine.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

// Of a rank on the CPU whose part of the machine is 16 GiB.
constexpr RankRoom kRoom{
    .device_bytes = 16 * kGiB, .host_bytes = 16 * kGiB, .free_host_bytes = 12 * kGiB, .one_memory = true};

MemoryPlan needing(std::int64_t device, std::int64_t host) {
  MemoryPlan plan{};
  plan.bytes = {device, host, 0};
  return plan;
}

TEST(Budgets, DeviceAndHostShareTheMemoryOfTheCpu) {
  for (const std::int64_t device_option : {std::int64_t{0}, 3 * kGiB})
    for (const std::int64_t host_option : {std::int64_t{0}, 2 * kGiB}) {
      RankRoom room = kRoom;
      room.device_option = device_option;
      room.host_option = host_option;
      for (const PlaceBytes& budgets : {budgets_of(room, needing(0, 0)), budgets_of(room, needing(2 * kGiB, 2 * kGiB)),
                                        budgets_of(room, needing(20 * kGiB, 20 * kGiB)), budgets_to_fill(room)}) {
        EXPECT_LE(budgets[0] + budgets[1], 16 * kGiB) << device_option << " " << host_option;
        if (device_option > 0) {
          EXPECT_EQ(budgets[0], device_option);
        }
        if (host_option > 0) {
          EXPECT_EQ(budgets[1], host_option);
        }
      }
    }
}

TEST(Budgets, WhatFitsTogetherFitsAndWhatDoesNotIsRefused) {
  for (const auto& [device, host] : {std::pair{2, 14}, {14, 2}, {8, 8}, {0, 16}, {16, 0}}) {
    const MemoryPlan plan = needing(device * kGiB, host * kGiB);
    EXPECT_TRUE(plan.fits(budgets_of(kRoom, plan))) << device << " " << host;
  }
  const MemoryPlan both = needing(9 * kGiB, 9 * kGiB);
  EXPECT_FALSE(both.fits(budgets_of(kRoom, both)));
  EXPECT_TRUE(names(error_text([&] {
                      check_fits(both, budgets_of(kRoom, both), {.command = "train"}, {}, "a step", {"", "", ""});
                    }),
                    "9.00 GiB", "host memory", "budget of 7.00 GiB", "device and host share 16.00 GiB"));
}

TEST(Budgets, AGpuAndItsHostAreTwoMemories) {
  RankRoom room = kRoom;
  room.one_memory = false;
  const PlaceBytes budgets = budgets_of(room, needing(9 * kGiB, 9 * kGiB));
  EXPECT_EQ(budgets[0], 16 * kGiB);
  EXPECT_EQ(budgets[1], 16 * kGiB);
}

TEST(Budgets, RanksOnAMachineHaveItsPartsAndDirectoriesOfADiskItsRoomOnce) {
  const TestDirectory directory;
  TierOptions options{.command = "train", .fills_files = true};
  for (const char* name : {"a", "b", "c"}) {
    std::filesystem::create_directory(directory.path() / name);
    options.nvme_paths.push_back(directory.path() / name);
  }
  const RankRoom alone = room_of(options, {}, 1), third = room_of(options, {}, 3);
  EXPECT_EQ(alone.host_bytes, usable_memory_bytes());
  EXPECT_EQ(third.host_bytes, usable_memory_bytes() / 3);
  EXPECT_EQ(third.device_bytes, usable_memory_bytes() / 3);
  const auto room = static_cast<double>(std::filesystem::space(directory.path()).available);
  EXPECT_NEAR(static_cast<double>(alone.free_nvme_bytes), room, room / 4);  // others write too
  EXPECT_NEAR(static_cast<double>(third.free_nvme_bytes), room / 3, room / 8);
}

// The same of a run, as it reports it.
TEST(Budgets, OfARunAreWithinItsMachine) {
  const ScratchModel model(16, 2, 64, 1000);
  for (const int ranks : {1, 3})
    for (const bool chosen : {false, true}) {
      TrainOptions options = model.options();
      options.seq_len = 16;
      options.micro_batch = 1;
      options.steps = 1;
      options.stage = 3;
      options.choose.optimizer = chosen;
      if (!chosen) options.placement.optimizer.host = 1;
      ::testing::internal::CaptureStderr();
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
      ::testing::internal::GetCapturedStderr();
      std::ifstream lines(options.log);
      std::string line;
      std::getline(lines, line);
      const Json plan = Json::parse(line);
      ASSERT_EQ(plan.at("event"), "plan");
      const auto budget = [&](const char* tier) { return plan.at(tier).at("budget_bytes").get<std::int64_t>(); };
      EXPECT_LE(budget("device") + budget("host"), usable_memory_bytes() / ranks) << ranks << " " << chosen;
      EXPECT_GT(budget("device") + budget("host"), usable_memory_bytes() / ranks / 2) << ranks << " " << chosen;
    }
}

}  // namespace
}  // namespace zeepo
