#include "zeepo/plan/hardware.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/plan/exact_plan.h"
#include "zeepo/plan/known_hardware.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

TEST(Hardware, AllThatAreKnownCanBeRead) {
  ASSERT_GE(hardware_names().size(), 5u);
  for (const std::string& name : hardware_names()) {
    const Hardware hardware = find_hardware(name);
    EXPECT_GT(hardware.device_bytes, std::int64_t{20} << 30) << name;
    EXPECT_GT(hardware.rates.products_16bit, hardware.rates.products_fp32 / 2) << name;
    EXPECT_TRUE(hardware.rates.beside_host);
  }
}

TEST(Hardware, FilesOfStrangersAreChecked) {
  const TestDirectory directory;
  const std::string good(known_hardware()[0].json);
  EXPECT_EQ(find_hardware(directory.write("good.json", good).string()).gpus_per_node, 16);
  const auto error_of = [&](const auto& change) {
    Json json = Json::parse(good);
    change(json);
    return error_text([&] { parse_hardware(json.dump(), "file"); });
  };
  EXPECT_TRUE(names(error_of([](Json& j) { j["gpu"].erase("memory"); }), "file: gpu: memory is missing"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["gpu"]["memory"] = "much"; }), "gpu: memory"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["link"]["to_host_gbps"] = -3; }), "to_host_gbps -3", "above 0"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["nodes"] = 1.5; }), "nodes 1.5", "whole number"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["disc"] = 1; }), "disc: no such key"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["host"] = 7; }), "host: must be an object"));
  EXPECT_TRUE(names(error_text([&] { parse_hardware("{", "file"); }), "file: is not JSON"));
  EXPECT_TRUE(names(error_text([&] { find_hardware("dgx9"); }), "dgx9: no such file", "dgx2-v100"));
}

// ZeRO-Infinity's runs on 32 DGX-2: TFLOP/s a GPU, with the work of recomputation counted. The paper prints 49 for half
// a trillion parameters, 43 for ten and 34 for twenty.
TEST(Hardware, ZeroInfinitysThroughputOn512GpusComesOut) {
  struct Run {
    TransformerShape shape;
    std::int64_t batch;
    double measured;
  };
  const Hardware hardware = find_hardware("dgx2-v100");
  const int ranks = hardware.nodes * hardware.gpus_per_node;
  for (const Run& run :
       {Run{{124, 18 << 10, 144}, 7, 49}, Run{{200, 64 << 10, 512}, 2, 43}, Run{{205, 88 << 10, 1024}, 1, 34}}) {
    TrainOptions options;
    options.backend = Backend::cuda;
    options.dtype = DType::f16;
    options.micro_batch = run.batch;
    options.seq_len = 1024;
    options.activation_checkpointing = true;
    const RunSetup setup = exact_setup({.options = options,
                                        .ranks = ranks,
                                        .ranks_on_node = hardware.gpus_per_node,
                                        .shape = config_of(run.shape, 0, options.seq_len)});
    TrainOptions placed = setup.options;
    placed.stage = 3;
    placed.placement = {.params = {.nvme = 1}, .optimizer = {.nvme = 1}};
    placed.nvme_paths = {"DIR"};
    const auto time = step_time(setup.with(placed), described_machine(hardware));
    ASSERT_TRUE(time);
    const double flops = 8.0 * static_cast<double>(run.batch * options.seq_len) *
                         static_cast<double>(parameter_count(setup)) / time->seconds;
    EXPECT_NEAR(flops / 1e12 / run.measured, 1, 0.25) << run.shape.hidden;
  }
}

}  // namespace
}  // namespace zeepo
