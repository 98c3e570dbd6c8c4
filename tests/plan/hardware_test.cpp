#include "zeepo/plan/hardware.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/plan/model_shapes.h"
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/error.h"
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
  EXPECT_TRUE(names(error_of([](Json& j) { j["gpu"]["memory"] = "1GiB"; }), "gpu: memory \"1GiB\"", "more than 1 GiB"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["gpu"]["memory"] = "0"; }), "gpu: memory \"0\"", "above 0"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["host"]["memory"] = "0GB"; }), "host: memory \"0GB\"", "above 0"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["disk"]["size"] = "0"; }), "disk: size \"0\"", "above 0"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["link"]["to_host_gbps"] = -3; }), "to_host_gbps -3", "above 0"));
  EXPECT_TRUE(
      names(error_of([](Json& j) { j["link"]["to_host_gbps"] = 1e300; }), "to_host_gbps 1e+300", "1e+15 at most"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["gpu"]["kernel_us"] = 5e-324; }), "kernel_us", "above 0"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["nodes"] = 1.5; }), "nodes 1.5", "whole number"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["disc"] = 1; }), "disc: no such key"));
  EXPECT_TRUE(names(error_of([](Json& j) { j["host"] = 7; }), "host: must be an object"));
  EXPECT_TRUE(names(error_text([&] { parse_hardware("{", "file"); }), "file: not JSON"));
  const std::string deep = "{\"name\":\"a\",\"nodes\":" + std::string(500'000, '[') + std::string(500'000, ']') + "}";
  EXPECT_TRUE(names(error_text([&] { parse_hardware(deep, "file"); }), "file: nested deeper"));
  EXPECT_TRUE(names(error_text([&] { find_hardware("dgx9"); }), "dgx9: no such file", "dgx2-v100"));
}

// A run on described GPUs, with fp16 and activation checkpointing as in ZeRO-Infinity's runs.
struct PaperRun {
  TransformerShape shape;
  std::int64_t batch;
  int nodes = 32;
  int stage = 3;
  Placement placement = {};
  std::int64_t prefetch_bytes = EngineOptions{}.prefetch_bytes;
  double links_at_once = 1;  // of a node's
  std::int64_t linear_tiles = 1;
};

struct PaperStep {
  StepTime time;
  std::int64_t params, device_bytes;
};

PaperStep step_of(const PaperRun& run) {
  Hardware hardware = find_hardware("dgx2-v100");
  hardware.rates.to_device *= run.links_at_once;
  hardware.rates.to_host *= run.links_at_once;
  TrainOptions options;
  options.backend = Backend::cuda;
  options.dtype = DType::f16;
  options.micro_batch = run.batch;
  options.seq_len = 1024;
  options.activation_checkpointing = true;
  const RunSetup setup = exact_setup({.options = options,
                                      .ranks = run.nodes * hardware.gpus_per_node,
                                      .ranks_on_node = hardware.gpus_per_node,
                                      .shape = config_of(run.shape, 0, options.seq_len)});
  TrainOptions placed = setup.options;
  placed.stage = run.stage;
  placed.placement = run.placement;
  placed.prefetch_bytes = run.prefetch_bytes;
  placed.nvme_paths = {"DIR"};
  placed.linear_tiles = run.linear_tiles;
  const RunSetup arranged = setup.with(placed);
  const auto time = step_time(arranged, described_machine(hardware));
  if (!time) throw Error("no time");
  return {*time, parameter_count(setup), plan_memory(arranged).bytes[static_cast<std::size_t>(Place::device)]};
}

double seconds_of(const PaperRun& run) { return step_of(run).time.seconds; }

// ZeRO-Infinity's runs on 32 DGX-2: TFLOP/s a GPU, with the work of recomputation counted. The paper prints 49 for half
// a trillion parameters, 43 for ten and 34 for twenty. States and activation checkpoints are on NVMe, linear layers in
// four tiles. So half a trillion and one fit the GPU's 31 GiB. Ten need 88 GiB and twenty 166, half of them the share
// of the gradients, which stays on the device: the paper kept these in files and cut the layers by model parallelism.
TEST(Hardware, ZeroInfinitysThroughputOn512GpusComesOut) {
  const std::int64_t gpu = gpu_budget(static_cast<std::size_t>(find_hardware("dgx2-v100").device_bytes));
  struct Row {
    PaperRun run;
    double measured;  // 0: the paper does not print it
    bool fits;
  };
  const Row rows[] = {{{{124, 18 << 10, 144}, 7}, 49, true},
                      {{{128, 25 << 10, 256}, 5}, 0, true},
                      {{{200, 64 << 10, 512}, 2}, 43, false},
                      {{{205, 88 << 10, 1024}, 1}, 34, false}};
  for (Row row : rows) {
    SCOPED_TRACE(row.run.shape.hidden);
    row.run.placement = {.params = {.nvme = 1}, .optimizer = {.nvme = 1}, .activations = Place::nvme};
    row.run.linear_tiles = 4;
    const PaperStep step = step_of(row.run);
    EXPECT_EQ(step.device_bytes <= gpu, row.fits) << step.device_bytes;
    const double flops =
        8.0 * static_cast<double>(row.run.batch * 1024) * static_cast<double>(step.params) / step.time.seconds;
    if (row.measured > 0) {
      EXPECT_NEAR(flops / 1e12 / row.measured, 1, 0.25);
    }
  }
}

// Steps of many micro-steps are told from those of three, whose bound may be another resource than theirs: here the
// link bounds steps of few micro-steps, and the compute those of many.
TEST(Hardware, NoStepIsFasterThanItsBusiestResource) {
  const TestDirectory directory;
  write_qwen_config(directory, k3B);
  double before = 0;
  for (const std::int64_t micro_steps : {2, 3, 4, 6, 16}) {
    TrainOptions options;
    options.model = directory.path();
    options.backend = Backend::cuda;
    options.dtype = DType::bf16;
    options.micro_batch = 4;
    options.seq_len = 2048;
    options.grad_accum = micro_steps;
    const RunSetup setup = exact_setup({.options = options});
    TrainOptions placed = setup.options;
    placed.placement.optimizer = {.host = 1};
    const auto time = step_time(setup.with(placed), described_machine(find_hardware("h200")));
    ASSERT_TRUE(time);
    const double busiest = *std::ranges::max_element(time->busy_seconds);
    EXPECT_GE(time->seconds, 0.999 * busiest) << micro_steps;
    EXPECT_GE(time->seconds, before) << micro_steps;
    before = time->seconds;
  }
}

// The paper's ablations, in their direction. Section 8.5: an 8B model on 64 GPUs with little work a GPU gains most from
// overlap, and hardly with much.
TEST(Hardware, OverlapPaysWhereBatchesAreSmall) {
  const auto gain = [](std::int64_t batch) {
    PaperRun run{{10, 8 << 10, 64}, batch};
    run.nodes = 4;
    run.placement.optimizer = {.host = 1};
    run.prefetch_bytes = 0;
    const double without = seconds_of(run);
    run.prefetch_bytes = std::int64_t{4} << 30;  // two blocks
    return without / seconds_of(run);
  };
  const double small = gain(2), large = gain(16);
  EXPECT_GT(small, 1.05);
  EXPECT_GT(small, large);
  EXPECT_GE(large, 1);
}

// Bandwidth-centric partitioning: each rank brings its part over its own link, and the parts meet on the network. So
// four times the GPUs are a quarter of the bytes on each link, where a rank that brings a whole parameter for all would
// have as many on any number.
TEST(Hardware, EachLinkCarriesARanksPart) {
  PaperRun run{{10, 8 << 10, 64}, 2};
  run.placement = {.params = {.host = 1}, .optimizer = {.host = 1}};
  const auto link_seconds = [&](int nodes) {
    run.nodes = nodes;
    return step_of(run).time.busy_seconds[static_cast<std::size_t>(SimulatedTime::Resource::to_device)];
  };
  EXPECT_NEAR(link_seconds(4) / link_seconds(1), 0.25, 0.02);
}

// A proxy for wholes over one link, which zeepo has not: the links of a node carry as little together as one of them.
TEST(Hardware, PartsOverAllLinksBeatWholesOverOne) {
  PaperRun run{{10, 8 << 10, 64}, 2};
  run.nodes = 4;
  run.placement = {.params = {.host = 1}, .optimizer = {.host = 1}};
  const double parts = seconds_of(run);
  run.links_at_once = 1.0 / 16;
  EXPECT_GT(seconds_of(run), 1.5 * parts);
}

// Activation checkpoints in host memory cost narrow models some time, and wide ones hardly any: their intensity grows
// with the width.
TEST(Hardware, OffloadedActivationsCostWideModelsLittle) {
  const auto cost = [](std::int64_t hidden) {
    PaperRun run{{5, hidden, hidden / 128}, 4};
    run.nodes = 4;
    const double kept = seconds_of(run);
    run.placement.activations = Place::host;
    return seconds_of(run) / kept;
  };
  const double narrow = cost(2 << 10), wide = cost(32 << 10);
  EXPECT_GT(narrow, 1.05);
  EXPECT_LT(wide, 1.05);
  EXPECT_GE(wide, 1);
}

}  // namespace
}  // namespace zeepo
