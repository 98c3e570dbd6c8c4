// The way of gathered weights between nodes, and units by their size: what is chosen, and that no bit depends on the
// way.
#include "zeepo/train/gather_route.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/binding/model_units.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/trainer.h"
#include "zeepo/train/wire_report.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

TrainOptions tiny(const std::string& route, int node_size) {
  const auto directory = std::filesystem::path(kTestData) / "golden" / "llama-tiny";
  TrainOptions options;
  options.model = directory;
  options.data = directory / "tokens.bin";
  options.seq_len = 16;
  options.micro_batch = 1;
  options.steps = 3;
  options.threads = 1;
  options.stage = 3;
  options.prefetch_bytes = 0;
  options.device_bytes = options.host_bytes = 64 << 20;
  options.wire.node_size = node_size;
  assign(options, "--gather-route", route);
  return options;
}

// The plan and the summary of a run.
std::pair<Json, Json> train(TrainOptions options, int ranks) {
  const TestDirectory directory;
  options.log = (directory.path() / "log.jsonl").string();
  testing::internal::CaptureStderr();
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  testing::internal::GetCapturedStderr();
  std::pair<Json, Json> events;
  std::ifstream lines(options.log);
  for (std::string line; std::getline(lines, line);) {
    const Json event = Json::parse(line);
    if (event.at("event") == "plan") events.first = event;
    if (event.at("event") == "summary") events.second = event;
  }
  return events;
}

TEST(GatherRoute, ARingMustSaveATenth) {
  EXPECT_FALSE(ring_is_faster({}));
  EXPECT_FALSE(ring_is_faster({.part_bytes = 1, .direct_seconds = 1, .ring_seconds = 0.95}));
  EXPECT_TRUE(ring_is_faster({.part_bytes = 1, .direct_seconds = 1, .ring_seconds = 0.85}));
}

TEST(GatherRoute, AllRanksComeToTheSameWayAndTimeOnlyWhereThereIsAChoice) {
  const auto chosen = [](const std::string& route, int ranks, int node_size) {
    std::vector<RunSetup> setups(static_cast<std::size_t>(ranks));
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) {
      const RunSetup setup = make_setup(tiny(route, node_size), shape_of(communicator));
      setups[static_cast<std::size_t>(communicator.rank())] = choose_gather_route(setup, communicator);
    });
    for (const RunSetup& setup : setups) {
      EXPECT_EQ(setup.options.wire.gather_way, setups[0].options.wire.gather_way);
      EXPECT_EQ(setup.timed_gathers.ring_seconds, setups[0].timed_gathers.ring_seconds);
    }
    return setups[0];
  };
  const RunSetup timed = chosen("auto", 3, 1);
  EXPECT_GT(timed.timed_gathers.part_bytes, 0);
  EXPECT_GT(timed.timed_gathers.direct_seconds, 0);
  EXPECT_GT(timed.timed_gathers.ring_seconds, 0);
  EXPECT_EQ(timed.options.wire.gather_way == GatherWay::ring, ring_is_faster(timed.timed_gathers));
  for (const auto& [ranks, node_size] : {std::pair{1, 0}, std::pair{3, 0}, std::pair{2, 1}, std::pair{4, 2}}) {
    const RunSetup only = chosen("auto", ranks, node_size);
    EXPECT_EQ(only.options.wire.gather_way, GatherWay::direct) << ranks;
    EXPECT_EQ(only.timed_gathers.part_bytes, 0) << ranks;
  }
  EXPECT_EQ(chosen("ring", 3, 1).options.wire.gather_way, GatherWay::ring);
  EXPECT_EQ(chosen("ring", 3, 1).timed_gathers.part_bytes, 0);
}

TEST(GatherRoute, EveryWayHasTheSameBits) {
  for (const auto& [ranks, node_size] : {std::pair{3, 0}, std::pair{3, 1}, std::pair{6, 2}})
    for (const WireType type : {WireType::same, WireType::int8}) {
      TrainOptions direct = tiny("direct", node_size), ring = tiny("ring", node_size);
      direct.wire.gather = ring.wire.gather = type;
      ring.wire.node_copy = true;
      const auto reference = train(direct, ranks), around = train(ring, ranks);
      EXPECT_EQ(around.second.at("weights_hash"), reference.second.at("weights_hash")) << ranks << name_of(type);
      EXPECT_EQ(around.second.at("loss"), reference.second.at("loss")) << ranks << name_of(type);
      const std::string route = around.first.at("communication").at("all_gather").at("route");
      EXPECT_TRUE(route.starts_with("ring")) << route;
    }
  const Json timed = train(tiny("auto", 1), 3).first.at("communication").at("all_gather");
  EXPECT_TRUE(names(timed.at("why").get<std::string>(), "around a ring", "ms"));
}

TEST(GatherRoute, ARingIsForRanksOnCpus) {
  TrainOptions options = tiny("ring", 0);
  options.backend = Backend::cuda;
  EXPECT_TRUE(names(error_text([&] { check(options); }), "--gather-route ring", "--device cpu"));
}

// What carries weights and gradients of a run on GPUs; planned without any.
TEST(WireReport, OnGpusThePlanTellsWhatPassesThroughHostMemory) {
  const auto planned = [](const WireOptions& wire) {
    RunSetup setup;
    setup.options = tiny("auto", 2);
    setup.options.wire = wire;
    setup.options.wire.node_size = 2;
    setup.options.backend = Backend::cuda;
    check(setup.options);
    ThreadsWorld world(4);
    return Json(wire_json(setup, world.communicator(0)));
  };
  const Json exact = planned({});
  EXPECT_EQ(exact.at("all_gather").at("route"), "direct");
  EXPECT_TRUE(names(exact.at("all_gather").at("why"), "a part at a time", "host memory"));
  const Json coded = planned({.gather = WireType::int8, .reduce = WireType::int4, .node_copy = true});
  for (const char* kind : {"all_gather", "reduce_scatter"}) {
    EXPECT_EQ(coded.at(kind).at("route"), "by nodes");
    EXPECT_TRUE(names(coded.at(kind).at("why"), "once", "through host memory"));
  }
  EXPECT_EQ(coded.at("node_copy"), true);
}

// Each rank ends before anything is sent.
TEST(WireReport, RanksThatDisagreeOnWhatTheySendAreTold) {
  for (const auto& differing :
       {std::pair{"--gather-dtype", "int8"}, std::pair{"--reduce-dtype", "int4"}, std::pair{"--node-copy", "true"},
        std::pair{"--node-size", "3"}, std::pair{"--gather-route", "ring"}, std::pair{"--balance", "1,1,0.5"}}) {
    std::vector<std::string> texts(3);
    ThreadsWorld world(3);
    EXPECT_THROW(run(world,
                     [&](Communicator& communicator) {
                       TrainOptions options = tiny("auto", 1);
                       if (communicator.rank() == 2) assign(options, differing.first, differing.second);
                       std::string& text = texts[static_cast<std::size_t>(communicator.rank())];
                       text = error_text([&] { Trainer(options, communicator).run(); });
                       throw Error("{}", text);
                     }),
                 Error);
    for (const std::string& text : texts)
      EXPECT_TRUE(names(text, "the ranks differ in", differing.first, "rank 0 has", "rank 2 has")) << text;
  }
}

std::int64_t chosen_blocks(std::int64_t layers, std::int64_t hidden) {
  TrainOptions options = tiny("auto", 0);
  assign(options, "--blocks-per-unit", "auto");
  ModelConfig config = load_config(options.model);
  config.layers = layers;
  config.windows.assign(static_cast<std::size_t>(layers), 0);
  config.hidden = hidden;
  config.intermediate = 4 * hidden;
  config.heads = config.kv_heads = hidden / 16;
  config.head_dim = 16;
  const RunSetup setup = make_setup(options, {.rank = 0, .ranks = 1}, config);
  EXPECT_TRUE(setup.blocks_chosen);
  return setup.options.blocks_per_unit;
}

TEST(BlocksPerUnit, SmallBlocksTravelTogetherAndLargeOnesAlone) {
  EXPECT_EQ(chosen_blocks(16, 512), 1);  // 4.2 million weights each
  const std::int64_t together = chosen_blocks(64, 128);
  EXPECT_GT(together, 1);
  EXPECT_LE(together, 16);  // four units at least
  EXPECT_EQ(chosen_blocks(3, 32), 1);
  EXPECT_EQ(chosen_blocks(64, 32), 16);
}

TEST(BlocksPerUnit, AutoHasTheBitsOfTheNumberThatItChose) {
  TrainOptions options = tiny("auto", 0);
  assign(options, "--blocks-per-unit", "auto");
  const auto chosen = train(options, 2);
  const std::string blocks = chosen.first.at("options").value("--blocks-per-unit", "1");  // as by default
  assign(options, "--blocks-per-unit", blocks);
  const auto given = train(options, 2);
  EXPECT_EQ(given.second.at("weights_hash"), chosen.second.at("weights_hash"));
  EXPECT_TRUE(names(error_text([&] { assign(options, "--blocks-per-unit", "few"); }), "--blocks-per-unit", "few"));
}

}  // namespace
}  // namespace zeepo
