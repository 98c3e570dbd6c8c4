// --no-communication: steps whose ranks send each other nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/errors.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/silent/silent_communicator.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/train/option_table.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

TrainOptions tiny_run() {
  TrainOptions options;
  options.model = golden("llama-tiny");
  options.data = options.model / "tokens.bin";
  options.seq_len = 16;
  options.steps = 2;
  options.threads = 1;
  options.device_bytes = options.host_bytes = 64 << 20;
  options.no_communication = true;
  return options;
}

TEST(NoCommunication, StepsEndAndSaySo) {
  const TestDirectory directory;
  for (const int stage : {0, 1, 2, 3}) {
    TrainOptions options = tiny_run();
    options.stage = stage;
    options.log = (directory.path() / "run.jsonl").string();
    ThreadsWorld world(2);
    testing::internal::CaptureStderr();
    run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
    EXPECT_TRUE(names(testing::internal::GetCapturedStderr(), "--no-communication: the ranks send each other nothing"));
    std::vector<Json> events;
    std::istringstream lines(read_text(options.log));
    for (std::string line; std::getline(lines, line);) events.push_back(Json::parse(line));
    EXPECT_EQ(events.front().at("no_communication"), true);
    EXPECT_EQ(events.back().at("event"), "summary");
    EXPECT_EQ(events.back().at("no_communication"), true);
    EXPECT_EQ(events.back().at("weights_hash"), "");
    EXPECT_TRUE(std::isfinite(events.back().at("loss").get<double>()));
    // What would have been sent is told.
    EXPECT_GT(events.back().at("ranks").at(0).at("comm_bytes").at(stage == 0 ? "all_gather" : "reduce_scatter"), 0);
  }
}

TEST(NoCommunication, SavesNothing) {
  const auto fault = [](const auto& change) {
    TrainOptions options = tiny_run();
    change(options);
    return error_text([&] { check(options); });
  };
  EXPECT_NO_THROW(check(tiny_run()));
  EXPECT_TRUE(names(fault([](TrainOptions& o) { o.output = "trained"; }), "--no-communication", "leave out --output"));
  EXPECT_TRUE(names(fault([](TrainOptions& o) { o.checkpoint_dir = "saved"; }), "leave out --checkpoint-dir"));
  EXPECT_TRUE(names(fault([](TrainOptions& o) {
                      o.stage = 3;
                      o.wire.node_copy = true;
                    }),
                    "--node-copy"));
  EXPECT_TRUE(names(fault([](TrainOptions& o) { o.backend = Backend::cuda; }), "ranks on CPUs"));
}

// Ranks that must not be asked to send.
class Mute final : public Communicator {
 public:
  std::string_view name() const override { return "mute"; }
  int rank() const override { return 1; }
  int size() const override { return 3; }
  void all_gather(CpuStream&, ConstView, View, const Label&) override { fail(); }
  void reduce_scatter(CpuStream&, ConstView, View, View, const Label&, const SumInto&) override { fail(); }
  void all_reduce(CpuStream&, View, const Label&) override { fail(); }
  void broadcast(CpuStream&, View, int, const Label&) override { fail(); }

 private:
  [[noreturn]] static void fail() { throw Error("something was sent"); }
};

TEST(NoCommunication, CollectivesAreWhatARankHas) {
  Mute mute;
  SilentCommunicator silent(mute);
  EXPECT_EQ(silent.rank(), 1);
  EXPECT_EQ(silent.size(), 3);
  ThreadPool pool(1);
  CpuStream stream(pool);
  std::vector<float> shard{1, 2}, full(6), sum(2);
  silent.all_gather(stream, {shard.data(), DType::f32, {2}}, {full.data(), DType::f32, {6}}, {"weights"});
  EXPECT_EQ(full, (std::vector<float>{1, 2, 1, 2, 1, 2}));
  full = {1, 2, 3, 4, 5, 6};
  silent.reduce_scatter(stream, {full.data(), DType::f32, {6}}, {}, {sum.data(), DType::f32, {2}}, {"gradients"});
  EXPECT_EQ(sum, (std::vector<float>{3, 4}));
  silent.all_reduce(stream, {sum.data(), DType::f32, {2}}, {"the norm"});
  EXPECT_EQ(sum, (std::vector<float>{3, 4}));
}

}  // namespace
}  // namespace zeepo
