// Plans of model directories: those of the run, for any number of ranks, from config.json alone.
#include "zeepo/plan/exact_plan.h"

#include <gtest/gtest.h>

#include "tests/plan/model_shapes.h"
#include "tests/support/errors.h"
#include "tests/support/scratch_model.h"
#include "tests/support/units.h"
#include "zeepo/plan/plan_json.h"

namespace zeepo {
namespace {

ExactQuestion question_for(const std::filesystem::path& model, int ranks) {
  ExactQuestion question{.options = {}, .ranks = ranks, .ranks_on_node = ranks};
  question.options.model = model;
  question.options.backend = Backend::cuda;
  question.options.dtype = DType::bf16;
  question.options.seq_len = 64;
  question.options.device_bytes = 80 * kGiB;
  question.options.host_bytes = 100 * kGiB;
  return question;
}

const ExactPlan& plan_named(const std::vector<ExactPlan>& plans, int stage, const std::string& name) {
  for (const ExactPlan& plan : plans)
    if (plan.stage == stage && plan.name == name) return plan;
  throw Error("no plan {} at stage {}", name, stage);
}

// Where the directory has a config.json and nothing else.
TEST(ExactPlan, IsThatOfTheRun) {
  const ScratchModel model(128, 4, 512, 1000);
  for (const int ranks : {1, 3}) {
    const ExactQuestion question = question_for(model.path(), ranks);
    const RunSetup setup = exact_setup(question);
    const auto plans = exact_plans(setup, exact_room(setup));
    ASSERT_EQ(plans.size(), 4 * usual_placements().size());
    for (const ExactPlan& plan : plans) {
      TrainOptions options = question.options;
      options.stage = plan.stage;
      options.placement = plan.arrangement.placement;
      options.activation_checkpointing = plan.arrangement.activation_checkpointing;
      options.nvme_paths = {"anywhere"};
      const auto meet = ranks > 1 ? RankShape::Meet::on_device : RankShape::Meet::in_host_memory;
      const MemoryPlan run =
          plan_memory(make_setup(options, {.rank = 0, .ranks = ranks, .ranks_on_node = ranks, .meet = meet}));
      EXPECT_EQ(plan.memory.bytes, run.bytes) << plan.stage << " " << plan.name;
      EXPECT_TRUE(plan.fits());
    }
  }
}

TEST(ExactPlan, ShardsByStageAndOffloadsByPlacement) {
  const TestDirectory directory;
  write_qwen_config(directory, k3B);
  const RunSetup setup = exact_setup(question_for(directory.path(), 8));
  const std::int64_t params = parameter_count(setup);
  EXPECT_EQ(params, 3'085'938'688);  // as published for Qwen2.5-3B
  const auto plans = exact_plans(setup, exact_room(setup));
  const auto resident = [&](int stage) -> const Usage& { return plan_named(plans, stage, "resident").memory.peak[0]; };
  const auto near = [](std::int64_t bytes, std::int64_t expected) {
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(expected), 0.002 * static_cast<double>(expected));
  };
  near(resident(0)[Kind::optimizer], 10 * params);  // bf16: two fp32 moments, and 2 bytes beside the weight
  near(resident(1)[Kind::optimizer], 10 * params / 8);
  near(resident(1)[Kind::grads], 2 * params);
  near(resident(2)[Kind::grads], 2 * params / 8);
  near(resident(2)[Kind::params], 2 * params);
  near(resident(3)[Kind::params], 2 * params / 8);
  const MemoryPlan host = plan_named(plans, 3, "optimizer+params host").memory;
  EXPECT_EQ(host.peak[0][Kind::optimizer], 0);
  near(host.peak[1][Kind::optimizer] + host.peak[1][Kind::params], 12 * params / 8);
  const MemoryPlan nvme = plan_named(plans, 3, "all nvme").memory;
  near(nvme.peak[2][Kind::optimizer] + nvme.peak[2][Kind::params], 12 * params / 8);
  EXPECT_GT(nvme.peak[2][Kind::activations], 0);
}

TEST(ExactPlan, SaysWhatIsMissing) {
  const TestDirectory directory;
  write_qwen_config(directory, k7B);
  ExactQuestion question = question_for(directory.path(), 1);
  question.options.device_bytes = 60 * kGiB;
  question.options.host_bytes = 50 * kGiB;
  const RunSetup setup = exact_setup(question);
  const auto plans = exact_plans(setup, exact_room(setup));
  const ExactPlan& resident = plan_named(plans, 0, "resident");
  EXPECT_FALSE(resident.fits());
  EXPECT_EQ(resident.missing[0], resident.memory.bytes[0] - 60 * kGiB);
  const ExactPlan& host = plan_named(plans, 0, "optimizer host");
  EXPECT_EQ(host.missing[0], 0);
  EXPECT_EQ(host.missing[1], host.memory.bytes[1] - 50 * kGiB);
  EXPECT_TRUE(plan_named(plans, 0, "optimizer nvme").fits());  // files take what they need
  question.options.nvme_bytes = 50 * kGiB;
  const RunSetup little = exact_setup(question);
  EXPECT_GT(plan_named(exact_plans(little, exact_room(little)), 0, "optimizer nvme").missing[2], 0);
}

// Every byte of the difference has a name.
TEST(ExactPlan, ExplainsTheTextbookToTheByte) {
  const TestDirectory directory;
  write_qwen_config(directory, k3B);
  for (const int ranks : {1, 8})
    for (const std::int64_t accumulation : {1, 2})
      for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
        if (ranks == 1 && dtype != DType::bf16) continue;
        ExactQuestion question = question_for(directory.path(), ranks);
        question.options.grad_accum = accumulation;
        question.options.dtype = dtype;
        const RunSetup setup = exact_setup(question);
        const std::int64_t params = parameter_count(setup);
        const auto plans = exact_plans(setup, exact_room(setup));
        for (int stage = 0; stage < kZeroStages; ++stage) {
          SCOPED_TRACE(
              fmt::format("{} ranks, {} micro-batches, {}, stage {}", ranks, accumulation, name_of(dtype), stage));
          const ExactPlan& plan = plan_named(plans, stage, "resident");
          const TextbookDifference of = difference_of(plan, setup, state_bytes(stage, params, ranks));
          EXPECT_EQ(of.exact, plan.memory.bytes[0] + plan.memory.bytes[1] + plan.memory.bytes[2]);
          EXPECT_EQ(of.textbook + of.kept + of.padding + of.activations + of.working + of.not_at_once, of.exact);
          EXPECT_GE(of.padding, 0);
          EXPECT_LT(of.padding, of.textbook / 1000);
        }
      }
}

TEST(ExactPlan, KnowsWhatAParameterTakes) {
  const auto kept = [](DType dtype, std::int64_t accumulation, MomentType moments) {
    TrainOptions options;
    options.dtype = dtype;
    options.grad_accum = accumulation;
    options.optimizer.moments = moments;
    const KeptBytes bytes = kept_bytes(options);
    return std::array{bytes.params, bytes.grads, bytes.optimizer};
  };
  EXPECT_EQ(kept(DType::f32, 1, MomentType::fp32), (std::array<double, 3>{4, 4, 8}));
  EXPECT_EQ(kept(DType::bf16, 1, MomentType::fp32), (std::array<double, 3>{2, 2, 10}));
  EXPECT_EQ(kept(DType::bf16, 4, MomentType::bf16), (std::array<double, 3>{2, 4, 6}));
  EXPECT_EQ(kept(DType::f16, 1, MomentType::fp32), (std::array<double, 3>{2, 2, 12}));
}

TEST(ExactPlan, KnowsThatARankAloneShardsNothing) {
  const TestDirectory directory;
  write_qwen_config(directory, k3B);
  const RunSetup setup = exact_setup(question_for(directory.path(), 1));
  const auto plans = exact_plans(setup, exact_room(setup));
  for (const ExactPlan& plan : plans)
    EXPECT_EQ(plan.memory.bytes, plan_named(plans, 0, plan.name).memory.bytes) << plan.stage << " " << plan.name;
}

TEST(ExactPlan, IsMadeForAThousandRanks) {
  const TestDirectory directory;
  write_qwen_config(directory, k14B);
  ExactQuestion question = question_for(directory.path(), 1024);
  question.ranks_on_node = 8;
  const RunSetup setup = exact_setup(question);
  const auto plans = exact_plans(setup, exact_room(setup));
  const Usage& peak = plan_named(plans, 3, "resident").memory.peak[0];
  const double share = static_cast<double>(parameter_count(setup)) / 1024;
  EXPECT_NEAR(static_cast<double>(peak[Kind::params] + peak[Kind::grads] + peak[Kind::optimizer]), 14 * share,
              0.01 * 14 * share);
}

TEST(ExactPlan, RefusesWhatCannotBe) {
  const ScratchModel model(128, 4, 512, 1000);
  EXPECT_TRUE(names(error_text([&] { exact_setup(question_for(model.path(), 0)); }), "--ranks 0"));
  EXPECT_TRUE(names(error_text([&] { exact_setup(question_for(model.path(), 2'000'000)); }), "--ranks 2000000"));
  EXPECT_TRUE(names(error_text([&] { exact_setup(question_for("nowhere", 1)); }), "nowhere"));
  ExactQuestion long_one = question_for(model.path(), 1);
  long_one.options.seq_len = 65;
  EXPECT_TRUE(names(error_text([&] { exact_setup(long_one); }), "--seq-len 65", "64"));
}

}  // namespace
}  // namespace zeepo
