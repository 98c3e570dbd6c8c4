// Memory is planned: the dry pass has the addresses and the peaks of the steps that follow it.
#include "tests/support/golden.h"

namespace zeepo {
namespace {

struct DryPlan {
  Usage peak;
  std::size_t high_water;
};

DryPlan plan(const Golden& golden, const GoldenRun& run) {
  Session session = Session::dry();
  const auto model = make_model(with_dropout(golden.config, run.dropout));
  {
    ModelEngine engine(*model, session.communicator(), engine_options(golden, run));
    const TokenFile tokens(golden.directory / "tokens.bin", golden.config.vocab);
    const std::int64_t rows = golden.batch() / run.accumulation;
    for (std::int64_t m = 0; m < run.accumulation; ++m)
      golden_micro_step(engine, *model, tokens, golden, m * rows, rows, 0);
    (void)engine.step(0);
  }
  return {session.memory().peak(), session.memory().high_water()};
}

TEST(Memory, EveryStepHasThePeakOfTheDryPass) {
  for (const std::string name : {"golden/gpt2-tiny", "golden/qwen3-tiny", "golden/qwen2-tiny"}) {
    const Golden golden = load_golden(name);
    for (const GoldenRun& run :
         {GoldenRun{}, GoldenRun{.accumulation = 2}, GoldenRun{.dtype = DType::bf16}, GoldenRun{.dtype = DType::f16},
          GoldenRun{.activation_checkpointing = true}, GoldenRun{.dropout = 0.1f},
          GoldenRun{.accumulation = 2, .dtype = DType::bf16, .activation_checkpointing = true}}) {
      GoldenRun short_run = run;
      short_run.steps = 3;
      const auto planned = plan(golden, short_run);
      const auto result = train_golden(golden, short_run);
      for (std::size_t step = 0; step < 3; ++step) {
        for (const Kind kind : kKinds)
          EXPECT_EQ(result.peaks[step][kind], planned.peak[kind])
              << name << " " << name_of(run.dtype) << " step " << step + 1 << " " << name_of(kind);
        EXPECT_EQ(result.peaks[step].total, planned.peak.total) << name << " step " << step + 1;
        EXPECT_EQ(result.in_use[step].total, result.in_use[0].total);
      }
      EXPECT_EQ(result.high_water, planned.high_water) << name;
    }
  }
}

}  // namespace
}  // namespace zeepo
