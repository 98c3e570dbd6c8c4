// What is recommended fits, and its command line and DeepSpeed's JSON say the same.
#include "zeepo/plan/recommended.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/plan/model_shapes.h"
#include "tests/support/errors.h"
#include "tests/support/units.h"
#include "zeepo/plan/plan_json.h"
#include "zeepo/train/given_options.h"

namespace zeepo {
namespace {

class RecommendedTest : public testing::Test {
 protected:
  RecommendedTest() { write_qwen_config(directory_, k3B); }

  RunSetup setup(int ranks, std::int64_t device, std::int64_t host, std::int64_t nvme = 0) const {
    ExactQuestion question{.options = {}, .ranks = ranks, .ranks_on_node = ranks};
    TrainOptions& options = question.options;
    options.model = directory_.path();
    options.backend = Backend::cuda;
    options.dtype = DType::bf16;
    options.seq_len = 512;
    options.device_bytes = device;
    options.host_bytes = host;
    options.nvme_bytes = nvme;
    if (nvme > 0) options.nvme_paths = {"DIR"};
    return exact_setup(question);
  }
  Recommended recommended(int ranks, std::int64_t device, std::int64_t host, std::int64_t nvme = 0) const {
    const RunSetup asked = setup(ranks, device, host, nvme);
    return recommend(asked, exact_room(asked));
  }

  TestDirectory directory_;
};

TEST_F(RecommendedTest, MovesAsLittleAsFits) {
  const Recommended one = recommended(1, 100 * kGiB, 100 * kGiB);
  EXPECT_TRUE(one.fits);
  EXPECT_EQ(one.setup.options.stage, 0);
  EXPECT_TRUE(one.setup.options.placement.on_device());
  const Recommended two = recommended(8, 100 * kGiB, 100 * kGiB);
  EXPECT_EQ(two.setup.options.stage, 2);
  EXPECT_TRUE(two.setup.options.placement.on_device());
  const Recommended three = recommended(8, 11 * kGiB, 100 * kGiB);
  EXPECT_EQ(three.setup.options.stage, 3);
  EXPECT_TRUE(three.setup.options.placement.on_device());
  const Recommended host = recommended(8, 6 * kGiB, 100 * kGiB);
  EXPECT_TRUE(host.fits);
  EXPECT_GT(host.setup.options.placement.optimizer.host, 0);
  EXPECT_FALSE(host.setup.options.placement.in_files());
  const Recommended files = recommended(1, 20 * kGiB, 10 * kGiB, 100 * kGiB);
  EXPECT_TRUE(files.fits);
  EXPECT_GT(files.setup.options.placement.optimizer.nvme, 0);
}

TEST_F(RecommendedTest, StaysWithinTheBudgets) {
  for (const int ranks : {1, 2, 8})
    for (const std::int64_t device : {8, 16, 32, 64}) {
      const Recommended found = recommended(ranks, device * kGiB, 60 * kGiB);
      if (!found.fits) continue;
      EXPECT_LE(found.memory.bytes[0], device * kGiB) << ranks;
      EXPECT_LE(found.memory.bytes[1], 60 * kGiB) << ranks;
    }
}

// The models and settings that were measured by hand on an H200: bench/RESULTS.md.
TEST(RecommendedOnAnH200, IsWhatWasFastestByHand) {
  const PlanMachine machine = described_machine(find_hardware("h200"));
  const auto recommended = [&](const QwenShape& shape, double* best) {
    const TestDirectory directory;
    write_qwen_config(directory, shape);
    ExactQuestion question;
    TrainOptions& options = question.options;
    options.model = directory.path();
    options.backend = Backend::cuda;
    options.dtype = DType::bf16;
    options.seq_len = 2048;
    options.micro_batch = 4;
    options.grad_accum = 4;
    options.device_bytes = 138 * kGiB;
    options.host_bytes = 110 * kGiB;
    const RunSetup asked = exact_setup(question);
    const RankRoom room = exact_room(asked);
    const std::vector<ExactPlan> plans = exact_plans(asked, room, machine);
    *best = std::numeric_limits<double>::infinity();
    for (const ExactPlan& plan : plans)
      if (plan.fits() && plan.time) *best = std::min(*best, plan.time->seconds);
    return recommend(asked, room, machine, plans);
  };
  double best = 0;
  const Recommended three = recommended(k3B, &best);
  EXPECT_TRUE(three.setup.options.placement.on_device());
  EXPECT_FALSE(three.setup.options.activation_checkpointing);
  EXPECT_LE(three.time->seconds, 1.05 * best);
  const Recommended seven = recommended(k7B, &best);
  EXPECT_GT(seven.setup.options.placement.optimizer.host, 0);
  EXPECT_TRUE(seven.setup.options.placement.params.on_device());
  EXPECT_FALSE(seven.setup.options.activation_checkpointing);
  EXPECT_LE(seven.time->seconds, 1.05 * best);
  const Recommended fourteen = recommended(k14B, &best);
  ASSERT_TRUE(fourteen.fits);
  EXPECT_LE(fourteen.time->seconds, 1.05 * best);
}

// A block of 1.5 GiB is not fetched ahead with the default --prefetch.
TEST(RecommendedOnDgx2, FetchesLargeUnitsAhead) {
  const PlanMachine machine = described_machine(find_hardware("dgx2-v100"));
  const auto recommended = [&](std::int64_t prefetch_bytes) {
    ExactQuestion question{
        .options = {}, .ranks = 128, .ranks_on_node = 16, .shape = config_of({100, 8192, 64}, 0, 1024)};
    question.options.backend = Backend::cuda;
    question.options.dtype = DType::f16;
    question.options.seq_len = 1024;
    question.options.device_bytes = 31 * kGiB;
    question.options.host_bytes = 90 * kGiB;
    question.options.prefetch_bytes = prefetch_bytes;
    const RunSetup asked = exact_setup(question);
    const RankRoom room = exact_room(asked);
    return recommend(asked, room, machine, exact_plans(asked, room, machine));
  };
  const Recommended ahead = recommended(TrainOptions{}.prefetch_bytes);
  EXPECT_EQ(ahead.setup.options.stage, 3);
  EXPECT_GE(ahead.setup.options.prefetch_bytes, std::int64_t{2} * 12 * 8192 * 8192);
  EXPECT_TRUE(ahead.fits);
  EXPECT_TRUE(names(command_of(ahead, {}), "--prefetch"));
  const Recommended asked_for = recommended(kGiB / 2);
  EXPECT_EQ(asked_for.setup.options.prefetch_bytes, kGiB / 2);
  EXPECT_LT(ahead.time->seconds, 0.8 * asked_for.time->seconds);
}

const ExactPlan& plan_named(const std::vector<ExactPlan>& plans, const std::string& name) {
  return *std::ranges::find(plans, name, &ExactPlan::name);
}

// What would be faster is planned again as a run has it, and that time decides.
TEST_F(RecommendedTest, GoesByTheTimeOfWhatItRecommends) {
  const RunSetup asked = setup(1, 100 * kGiB, 100 * kGiB, 100 * kGiB);
  const PlanMachine machine = described_machine(find_hardware("h200"));
  std::vector<ExactPlan> plans = exact_plans(asked, exact_room(asked), machine);
  for (ExactPlan& plan : plans)
    if (plan.name == "all nvme") plan.time->seconds = 1e-9;
  EXPECT_TRUE(recommend(asked, exact_room(asked), machine, plans).setup.options.placement.on_device());
}

// Here files beat recomputation. A plan needs no --nvme-path: the command says where it goes.
TEST_F(RecommendedTest, RecommendsFilesThatHaveNoNameYet) {
  PlanMachine machine = described_machine(find_hardware("h200"));
  for (double* rate : {&machine.rates->read, &machine.rates->write, &machine.rates->to_device, &machine.rates->to_host})
    *rate = 1e13;
  TrainOptions options = setup(1, 500 * kGiB, kGiB).options;
  options.micro_batch = 16;
  const RunSetup roomy = exact_setup({.options = options});
  const std::vector<ExactPlan> known = exact_plans(roomy, exact_room(roomy));
  options.device_bytes = plan_named(known, "recompute activations").memory.bytes[0] + kGiB;
  ASSERT_GT(plan_named(known, "resident").memory.bytes[0], options.device_bytes);
  ASSERT_LT(plan_named(known, "optimizer nvme").memory.bytes[0], options.device_bytes);
  const RunSetup asked = exact_setup({.options = options});
  const RankRoom room = exact_room(asked);
  const Recommended found = recommend(asked, room, machine, exact_plans(asked, room, machine));
  EXPECT_TRUE(found.setup.options.placement.in_files());
  EXPECT_FALSE(found.setup.options.activation_checkpointing);
  EXPECT_TRUE(names(command_of(found, {}), "--offload-optimizer nvme", "--nvme-path DIR"));
}

TEST_F(RecommendedTest, SaysWhatWouldHelpWhereNothingFits) {
  const Recommended nothing = recommended(1, 20 * kGiB, 4 * kGiB);
  EXPECT_FALSE(nothing.fits);
  EXPECT_TRUE(names(nothing.ways_out, "--nvme-path"));
  EXPECT_FALSE(recommended_json(nothing, {}).at("fits").get<bool>());
}

// The options of the printed command, read as `zeepo train` reads them.
TEST_F(RecommendedTest, PrintsACommandThatAsksForIt) {
  for (const std::int64_t device : {6, 11, 100}) {
    const Recommended found = recommended(8, device * kGiB, 100 * kGiB);
    const std::string command =
        command_of(found, {{"--seq-len", "512"}, {"--dtype", "bf16"}, {"--model", "elsewhere"}});
    const std::string start =
        fmt::format("mpirun -n 8 zeepo train --model {} --data FILE --from-scratch ", directory_.path().string());
    ASSERT_TRUE(command.starts_with(start)) << command;
    TrainOptions read;
    std::istringstream words(command.substr(start.size()));
    for (std::string name, value; words >> name;) {
      if (find_option(name)->is_flag)
        value = "true";
      else
        words >> value;
      assign(read, name, value);
    }
    EXPECT_EQ(read.stage, found.setup.options.stage);
    EXPECT_EQ(read.seq_len, 512);
    EXPECT_EQ(read.dtype, DType::bf16);
    EXPECT_EQ(read.placement.optimizer, found.setup.options.placement.optimizer);
    EXPECT_EQ(read.placement.params, found.setup.options.placement.params);
    EXPECT_EQ(read.placement.activations, found.setup.options.placement.activations);
    EXPECT_EQ(read.activation_checkpointing, found.setup.options.activation_checkpointing);
    EXPECT_EQ(read.prefetch_bytes, found.setup.options.prefetch_bytes);
  }
}

TEST_F(RecommendedTest, QuotesWhatAShellWouldSplit) {
  Recommended found = recommended(8, 100 * kGiB, 100 * kGiB);
  found.setup.options.model = "it's a model";
  EXPECT_TRUE(names(command_of(found, {}), R"(--model 'it'\''s a model' --data)"));
}

TEST_F(RecommendedTest, PrintsAFileForDeepSpeedThatAsksForIt) {
  const RunSetup asked = setup(4, 80 * kGiB, 80 * kGiB, 80 * kGiB);
  const std::vector<Arrangement> arrangements{
      {.placement = {}, .activation_checkpointing = false, .prefetch_bytes = TrainOptions{}.prefetch_bytes},
      {.placement = {.params = {}, .optimizer = {.host = 0.25}}, .activation_checkpointing = true, .prefetch_bytes = 0},
      {.placement = {.params = {.nvme = 1}, .optimizer = {.host = 1}, .activations = Place::host},
       .activation_checkpointing = true,
       .prefetch_bytes = 4096},
      {.placement = {.params = {.host = 0.5, .nvme = 0.5}, .optimizer = {.nvme = 1}, .activations = Place::nvme},
       .activation_checkpointing = true,
       .prefetch_bytes = 4096}};
  for (const Arrangement& arrangement : arrangements) {
    RunSetup arranged = asked.with(arrangement);
    arranged.options.stage = 3;
    const DeepSpeedSettings settings =
        deepspeed_of(arranged, {{"--seq-len", "512"}, {"--moments", "bf16"}, {"--model", "elsewhere"}});
    const DeepSpeedConfig config = parse_deepspeed_config(settings.json.dump(), "ds.json");
    EXPECT_TRUE(config.unused.empty()) << warning_of(config);
    TrainOptions read;
    apply(config, {}, 4, read);
    std::istringstream words(settings.flags_beside);
    for (std::string name, value; words >> name >> value;) assign(read, name, value);
    EXPECT_EQ(read.stage, 3);
    EXPECT_EQ(read.seq_len, 512);  // these have no key
    EXPECT_EQ(read.optimizer.moments, MomentType::bf16);
    EXPECT_EQ(read.dtype, DType::bf16);
    EXPECT_EQ(read.placement.optimizer, arrangement.placement.optimizer);
    EXPECT_EQ(read.placement.params, arrangement.placement.params);
    EXPECT_EQ(read.placement.activations, arrangement.placement.activations);
    EXPECT_EQ(read.activation_checkpointing, arrangement.activation_checkpointing);
    EXPECT_EQ(read.prefetch_bytes, arrangement.prefetch_bytes);
    EXPECT_EQ(read.optimizer.beta2, asked.options.optimizer.beta2);
    EXPECT_EQ(read.clip, asked.options.clip);
    EXPECT_EQ(read.nvme_paths.empty(), !arrangement.placement.in_files());
  }
}

}  // namespace
}  // namespace zeepo
