// Plans beside runs: what `zeepo plan` says of every tier and kind is what a run holds, over random settings.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/drawn.h"
#include "tests/support/test_data.h"
#include "tests/support/test_directory.h"
#include "zeepo/base/file.h"
#include "zeepo/comm/threads/threads_world.h"
#include "zeepo/plan/exact_plan.h"
#include "zeepo/plan/plan_json.h"
#include "zeepo/train/dry_steps.h"
#include "zeepo/train/trainer.h"

namespace zeepo {
namespace {

using PlainJson = nlohmann::json;

struct RandomRun {
  TrainOptions options;
  int ranks = 1;
};

class PlannedBytes : public Drawn {
 protected:
  RandomRun draw(const TestDirectory& directory);
};

RandomRun PlannedBytes::draw(const TestDirectory& directory) {
  const std::vector<Shares> shares{{}, {.host = 1}, {.nvme = 1}, {.host = 0.5}, {.host = 0.3, .nvme = 0.4}};
  RandomRun drawn;
  TrainOptions& options = drawn.options;
  options.model = golden(one_of<std::string>({"gpt2-tiny", "llama-tiny", "qwen2-tiny"}));
  options.data = options.model / "tokens.bin";
  options.dtype = one_of<DType>({DType::f32, DType::bf16, DType::f16});
  options.loss_scale.initial = 1;  // steps that overflow and are skipped hold less
  options.stage = one_of<int>({0, 1, 2, 3});
  options.placement.params = one_of(shares);
  options.placement.optimizer = one_of(shares);
  options.placement.activations = one_of<Place>({Place::device, Place::host, Place::nvme});
  options.activation_checkpointing = one_of<int>({0, 1}) == 1;
  options.micro_batch = one_of<std::int64_t>({1, 2, 3});
  options.grad_accum = one_of<std::int64_t>({1, 2, 3});
  options.seq_len = 16;
  options.steps = 3;
  options.threads = 1;
  options.tune = {};
  options.nvme_paths = {directory.path()};
  options.device_bytes = options.host_bytes = options.nvme_bytes = 64 << 20;
  drawn.ranks = one_of<int>({1, 2, 3, 4});
  return drawn;
}

// As `zeepo plan --model DIR --ranks N` has it, without any rank; and its steps alone. A plan has room for weights to
// be read after the last step, which the peaks of a summary do not have.
struct Planned {
  PlainJson all, steps;
};
Planned planned(const RandomRun& drawn) {
  const RunSetup setup = exact_setup({.options = drawn.options, .ranks = drawn.ranks, .ranks_on_node = drawn.ranks});
  TrainOptions options = setup.options;
  options.stage = drawn.options.stage;
  options.placement = drawn.options.placement;
  const RunSetup placed = setup.with(options);
  DrySteps dry(placed, options.grad_accum);
  dry.step();
  dry.step();
  return {PlainJson::parse(to_json(plan_memory(placed)).dump()),
          PlainJson::parse(to_json(used_by(dry.session())).dump())};
}

PlainJson measured(const RandomRun& drawn, const TestDirectory& directory) {
  TrainOptions options = drawn.options;
  options.log = (directory.path() / "run.jsonl").string();
  ThreadsWorld world(drawn.ranks);
  testing::internal::CaptureStderr();
  run(world, [&](Communicator& communicator) { Trainer(options, communicator).run(); });
  testing::internal::GetCapturedStderr();
  std::istringstream lines(read_text(options.log));
  PlainJson last;
  for (std::string line; std::getline(lines, line);) last = PlainJson::parse(line);
  return last.at("ranks").at(0).at("peak_bytes");
}

TEST_F(PlannedBytes, AreThoseOfRunsWithRandomSettings) {
  constexpr int kRuns = 12;
  for (int i = 0; i < kRuns; ++i) {
    const TestDirectory directory;
    const RandomRun drawn = draw(directory);
    SCOPED_TRACE(
        testing::Message() << "run " << i << ": " << drawn.options.model << ", stage " << drawn.options.stage << ", "
                           << drawn.ranks << " ranks, " << name_of(drawn.options.dtype) << ", "
                           << flags_of(Arrangement{drawn.options.placement, drawn.options.activation_checkpointing,
                                                   drawn.options.prefetch_bytes}));
    const Planned plan = planned(drawn);
    const PlainJson held = measured(drawn, directory);
    for (const auto& [tier, kinds] : plan.all.items())
      for (const auto& [kind, bytes] : kinds.items()) {
        EXPECT_LE(held.at(tier).at(kind).get<double>(), 1.02 * bytes.get<double>()) << tier << " " << kind;
        EXPECT_GE(held.at(tier).at(kind).get<double>(), 0.98 * plan.steps.at(tier).at(kind).get<double>())
            << tier << " " << kind;
      }
  }
}

}  // namespace
}  // namespace zeepo
