#include "zeepo/binding/model_units.h"

#include "tests/support/errors.h"
#include "zeepo/nn/layers.h"

namespace zeepo {
namespace {

class Block : public Module {
 public:
  explicit Block(bool unit) {
    child<Linear>("up", 3, 5);
    child<Linear>("down", 5, 3);
    if (unit) mark_unit();
  }
};

class TiedHead : public Module {
 public:
  explicit TiedHead(Parameter& weight) {
    child<RmsNorm>("norm", 3);
    borrow(weight);
    mark_unit();
  }
};

class Wrapper : public Module {
 public:
  Wrapper() { child<Block>("inner", true); }
};

class Model : public Module {
 public:
  explicit Model(bool marked) {
    auto& table = child<Embedding>("table", 10, 3);
    child<Block>("block", marked);
    if (!marked) return;
    child<Wrapper>("wrapper");  // the unit is deeper
    parameter("scale", {1}, Init::ones());
    child<TiedHead>("head", table.weight());
  }
};

std::vector<std::string> unit_names(const UnitPlan& plan) {
  std::vector<std::string> names;
  for (const auto& unit : plan.units) names.push_back(unit.name);
  return names;
}

TEST(UnitPlan, MarkedModulesAreUnitsAndWhatIsLeftIsOneMore) {
  Model model(true);
  const auto plan = plan_units(model);
  EXPECT_EQ(unit_names(plan), (std::vector<std::string>{"block", "wrapper.inner", "head", "rest"}));
  ASSERT_EQ(plan.units[1].parameters.size(), 4u);
  EXPECT_EQ(plan.units[1].parameters[0].weights[0].slice.name, "wrapper.inner.up.weight");
  // Neither the table nor the scale is in a marked module.
  ASSERT_EQ(plan.units[3].parameters.size(), 2u);
  EXPECT_EQ(plan.units[3].parameters[0].weights[0].slice.name, "scale");
  EXPECT_EQ(plan.units[3].parameters[1].weights[0].slice.name, "table.weight");
}

TEST(UnitPlan, AVisitNeedsTheUnitsItBorrowsFrom) {
  Model model(true);
  const auto plan = plan_units(model);
  ASSERT_EQ(plan.visits.size(), 3u);
  EXPECT_EQ(plan.visits[0].units, (std::vector<std::size_t>{0}));
  EXPECT_EQ(plan.visits[2].units, (std::vector<std::size_t>{2}));  // the table is outside of all units: always there

  class Borrower : public Module {
   public:
    explicit Borrower(Parameter& weight) { borrow(weight); }
  };
  class Pair : public Module {
   public:
    Pair() {
      auto& table = child<Embedding>("table", 10, 3);
      child<Linear>("between", 3, 3);
      child<Borrower>("head", table.weight());
    }
  } pair;
  const auto tied = plan_units(pair);
  ASSERT_EQ(tied.visits.size(), 3u);
  EXPECT_EQ(tied.visits[1].units, (std::vector<std::size_t>{1}));
  EXPECT_EQ(tied.visits[2].units, (std::vector<std::size_t>{0}));  // has no parameters of its own
}

TEST(UnitPlan, WithoutMarksEachChildIsAUnit) {
  Model model(false);
  const auto plan = plan_units(model);
  EXPECT_EQ(unit_names(plan), (std::vector<std::string>{"table", "block"}));
  EXPECT_EQ(plan.visits.size(), 2u);
}

TEST(UnitPlan, EveryParameterIsInOneUnitAtAnAlignedPlace) {
  Model model(true);
  const auto plan = plan_units(model);
  std::size_t count = 0;
  for (const auto& unit : plan.units) {
    std::int64_t end = 0;
    for (const auto& parameter : unit.parameters) {
      ++count;
      EXPECT_EQ(parameter.offset % Unit::kAlignment, 0);
      EXPECT_GE(parameter.offset, end);
      EXPECT_LT(parameter.offset - end, Unit::kAlignment);
      end = parameter.extent().end;
    }
    EXPECT_GE(unit.elements, end);
    EXPECT_EQ(unit.elements % Unit::kAlignment, 0);
  }
  EXPECT_EQ(count, named_parameters(model).size());
}

TEST(UnitPlan, AParameterOfAnotherModelCannotBeBorrowed) {
  Embedding elsewhere(4, 3);
  class Alone : public Module {
   public:
    explicit Alone(Parameter& weight) { child<TiedHead>("head", weight); }
  };
  Alone model(elsewhere.weight());
  EXPECT_TRUE(names(error_text([&] { (void)plan_units(model); }), "weight", "borrowed from outside"));
}

}  // namespace
}  // namespace zeepo
