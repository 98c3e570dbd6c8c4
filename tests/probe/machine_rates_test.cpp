#include "zeepo/probe/machine_rates.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/probe/measure.h"

namespace zeepo {
namespace {

MachineRates some_rates() {
  MachineRates rates;
  rates.date = "2026-11-16T17:00:00Z";
  rates.machine = "node/1";
  rates.ranks = 2;
  rates.matmul_flops = {{"fp32", 5e10}, {"bf16", 2e14}};
  rates.attention_flops = 3e10;
  rates.device_memory = 4e12;
  rates.kernel_seconds = 5e-6;
  rates.host_memory = 1e10;
  rates.link = {5e10, 4e10, 3e10};
  rates.host_steps = 4e8;
  rates.files = MachineRates::Files{"/nvme", 2e9, 1e9, 6e9, 4e9};
  rates.collectives = MachineRates::Collectives{7e8, 6e8, 1e-5};
  return rates;
}

TEST(MachineRates, ReadBackTheSame) {
  const MachineRates rates = some_rates();
  EXPECT_EQ(to_json(rates_from(to_json(rates))), to_json(rates));
  MachineRates less = rates;
  less.files.reset();
  less.collectives.reset();
  EXPECT_EQ(to_json(rates_from(to_json(less))), to_json(less));
  EXPECT_TRUE(names(text_of(rates), "fp32 50 GFLOP/s", "bf16 200 TFLOP/s", "30 GB/s each way",
                    "read 2 GB/s, write 1 GB/s", "0.7 GB/s sent by a rank", "10 us"));
}

TEST(MachineRates, AreKeptAndFoundAgain) {
  const TestDirectory directory;
  const auto path = directory.path() / "a" / "b" / "probe.json";
  EXPECT_FALSE(kept_rates(path));
  keep(some_rates(), path);
  ASSERT_TRUE(kept_rates(path));
  EXPECT_EQ(to_json(*kept_rates(path)), to_json(some_rates()));
  const auto below_a_file = path / "probe.json";
  EXPECT_TRUE(names(error_text([&] { keep(some_rates(), below_a_file); }), "probe: the result cannot be kept for plans",
                    path.string()));
}

// A directory may have any name; what is no UTF-8 becomes U+FFFD.
TEST(MachineRates, AreKeptWithDirectoriesOfAnyName) {
  const TestDirectory directory;
  MachineRates rates = some_rates();
  rates.files->path = "/nvme\xff";
  keep(rates, directory.path() / "probe.json");
  const auto kept = kept_rates(directory.path() / "probe.json");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->files->path, "/nvme\ufffd");
  EXPECT_EQ(kept->files->read, rates.files->read);
}

// A file of another version, or a damaged one, is no reason to fail.
TEST(MachineRates, DamagedAreNone) {
  const TestDirectory directory;
  EXPECT_FALSE(kept_rates(directory.write("half.json", R"({"date":"x)")));
  auto json = to_json(some_rates());
  json["link_bytes_per_second"]["both"] = -1;
  EXPECT_FALSE(kept_rates(directory.write("negative.json", json.dump())));
  EXPECT_TRUE(names(error_text([&] { rates_from(json); }), "both must be a number above 0"));
  json = to_json(some_rates());
  json["ranks"] = 1.5;
  EXPECT_TRUE(names(error_text([&] { rates_from(json); }), "ranks must be a small whole number"));
  json = to_json(some_rates());
  json["matmul_flops"] = nlohmann::ordered_json::object();
  EXPECT_TRUE(names(error_text([&] { rates_from(json); }), "fp32 must be a number above 0"));
  EXPECT_FALSE(kept_rates(directory.path()));
  EXPECT_FALSE(kept_rates({}));
}

TEST(MachineRates, HaveAPathOfTheirOwn) {
  const auto path = rates_path("node/1", Backend::cpu, 2).filename();
  EXPECT_EQ(path, "probe-node_1-cpu-2.json");
  EXPECT_NE(rates_path("node/1", Backend::cuda, 2).filename(), path);
}

TEST(Probe, MeasuresAllRanksTogether) {
  const TestDirectory directory;
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    const MachineRates rates =
        measure_machine({.threads = 1, .nvme_paths = {directory.path()}}, GpuPlace{}, communicator);
    EXPECT_EQ(rates.ranks, 2);
    ASSERT_TRUE(rates.files && rates.collectives);
    EXPECT_NO_THROW(rates_from(to_json(rates)));  // every figure is a number above 0
  });
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace zeepo
