// The page is of the settings that it recommends, with what a run tunes.
#include "zeepo/plan/plan_page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/plan/model_shapes.h"
#include "tests/support/units.h"

namespace zeepo {
namespace {

using PlainJson = nlohmann::json;

PlainJson data_of(const std::string& page) {
  const std::string begin = "const zeepoPlan = ";
  const std::size_t at = page.find(begin) + begin.size();
  return PlainJson::parse(page.substr(at, page.find(";\n", at) - at));
}

class PlanPage : public testing::Test {
 protected:
  PlanPage() { write_qwen_config(directory_, k3B); }

  // The optimizer in host memory, on a GPU that has room to bring its state up ahead of the step.
  Recommended offloaded(std::int64_t device, std::int64_t host) const {
    ExactQuestion question;
    TrainOptions& options = question.options;
    options.model = directory_.path();
    options.backend = Backend::cuda;
    options.dtype = DType::bf16;
    options.seq_len = 2048;
    options.device_bytes = device;
    options.host_bytes = host;
    const RunSetup setup = exact_setup(question);
    TrainOptions placed = setup.options;
    placed.placement.optimizer = {.host = 1};
    return as_run(setup.with(placed), {exact_room(setup)}, machine_);
  }

  TestDirectory directory_;
  const PlanMachine machine_ = described_machine(find_hardware("h200"));
};

TEST_F(PlanPage, ShowsTheStepThatItsTileTellsOf) {
  const Recommended found = offloaded(100 * kGiB, 100 * kGiB);
  ASSERT_TRUE(found.fits && found.time);
  ASSERT_GT(step_time(found.setup, machine_)->seconds, 1.02 * found.time->seconds);
  const PlainJson data = data_of(training_page("a plan", found, {}, machine_, {}));
  EXPECT_NEAR(data.at("timeline").at("seconds").get<double>(), found.time->seconds, 0.01 * found.time->seconds);
  const PlainJson& speed = data.at("curves").at(1);
  EXPECT_EQ(speed.at("xs").at(0), 1);
  EXPECT_DOUBLE_EQ(speed.at("lines").at(0).at("values").at(0).get<double>(), found.time->tokens_per_second);
}

// More samples need more of every tier that they live in.
TEST_F(PlanPage, ItsCurvesEndWhereAnyTierIsFull) {
  Recommended found = offloaded(100 * kGiB, 100 * kGiB);
  found.setup.options.placement.activations = Place::host;
  found.setup.options.activation_checkpointing = true;
  constexpr auto device = static_cast<std::size_t>(Place::device);
  found.rooms.front().host_option = plan_memory(found.setup).bytes[static_cast<std::size_t>(Place::host)] + (kGiB >> 2);
  const std::vector<PlanCurve> curves = curves_by_batch(found, machine_);
  const PlanCurve& memory = curves.at(0);
  EXPECT_LT(*memory.lines.at(0).values.back(), static_cast<double>(found.budgets[device]));
  EXPECT_FALSE(curves.at(1).lines.at(0).values.back().has_value());
  EXPECT_LT(memory.xs.back(), 256);
}

}  // namespace
}  // namespace zeepo
