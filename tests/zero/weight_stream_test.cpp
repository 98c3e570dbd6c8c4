// Gathered parameters, without gradients or steps.
#include "zeepo/zero/weight_stream.h"

#include <gtest/gtest.h>

#include "tests/zero/room_rig.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

constexpr ParameterId kMatrix{0, 0};

// Each rank's shard holds the weights that belong there.
void fill_shards(StateStore& store, const StatePlan& plan) {
  for (std::size_t u = 0; u < plan.units.size(); ++u) {
    const Extent& own = plan.units[u].own;
    StateStore::UnitMemory& unit = store.unit(u);
    for (std::int64_t i = own.begin; i < own.end; ++i) {
      if (unit.params_block.defined())
        reinterpret_cast<float*>(unit.params_block.data())[i - own.begin] = weight_at(u, i);
      else
        unit.params.of({i, i + 1}).view().as<float>()[0] = weight_at(u, i);
    }
  }
}

void expect_weights(const Tensor& matrix, std::size_t unit) {
  ASSERT_TRUE(matrix.defined());
  const auto values = matrix.to_floats();
  for (std::size_t i = 0; i < values.size(); i += 101)
    ASSERT_EQ(values[i], weight_at(unit, static_cast<std::int64_t>(i))) << i;
}

TEST(WeightStream, GathersWhatAVisitWantsAndLetsGoOfTheRest) {
  const UnitPlan units = plain_units({40, 50, 60});
  for (const int ranks : {1, 3})
    for (const double offloaded : {0.0, 1.0}) {
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) {
        Session session(small_session(), communicator);
        EngineOptions options{.stage = 3};
        options.placement.params.host = offloaded;
        const StatePlan plan = plan_states(units, options, place_of(communicator));
        StateStore store(units, plan);
        Collectives collectives(communicator, Collectives::Overlap::yes);
        WeightStream weights(units, plan, store, collectives);
        fill_shards(store, plan);
        const std::int64_t before = session.memory().current().total;
        for (int pass = 0; pass < 2; ++pass) {
          const auto hold = [&](const PassPlanner::Wanted& wanted) {
            for (const auto* list : {&wanted.now, &wanted.ahead})
              for (const std::size_t u : *list) weights.fetch(u);
            for (const std::size_t u : wanted.now) weights.await(u);
          };
          hold(weights.begin_pass(PassKind::inference));
          for (const std::size_t visit : {0u, 1u, 2u}) {
            hold(weights.visit({visit, Visit::Direction::forward}));
            expect_weights(weights.parameter({visit, 0}), visit);
            // What no visit wants is not here: in the first pass nothing is prefetched.
            if (pass == 0 && (ranks > 1 || offloaded > 0)) {
              EXPECT_FALSE(weights.parameter({(visit + 1) % 3, 0}).defined());
            }
          }
          weights.end_pass();
          weights.release_all();
        }
        EXPECT_EQ(session.memory().current().total, before);
      });
    }
}

TEST(WeightStream, PublishedUnitsAreNotHereUntilTheOtherRanksPartsHaveCome) {
  const UnitPlan units = plain_units({40});
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    Session session(small_session(), communicator);
    const StatePlan plan = plan_states(units, {.stage = 1}, place_of(communicator));
    StateStore store(units, plan);
    Collectives collectives(communicator, Collectives::Overlap::yes);
    WeightStream weights(units, plan, store, collectives);
    EXPECT_TRUE(weights.parameter(kMatrix).defined());
    fill_shards(store, plan);
    weights.publish(0);
    EXPECT_FALSE(weights.parameter(kMatrix).defined());
    weights.await(0);
    expect_weights(weights.parameter(kMatrix), 0);
    // What is published later goes with the next pass.
    const std::int64_t sent = collectives.sent().all_gather;
    weights.publish_later(0);
    EXPECT_EQ(collectives.sent().all_gather, sent);
    (void)weights.begin_pass(PassKind::training);
    EXPECT_GT(collectives.sent().all_gather, sent);
    weights.await(0);
  });
}

// Nodes of two ranks: what crosses between them for each of two units, the second not trained.
TEST(WeightStream, ANodesCopyOfWeightsThatAreNotTrainedStays) {
  UnitPlan units = plain_units({40, 50});
  for (UnitParameter& parameter : units.units[1].parameters) parameter.trainable = false;
  ThreadsWorld world(4);
  run(world, [&](Communicator& communicator) {
    Session session(small_session(), communicator);
    const WireOptions wire{.node_copy = true, .node_size = 2};
    const StatePlan plan = plan_states(units, {.stage = 3, .wire = wire}, place_of(communicator));
    StateStore store(units, plan);
    Collectives collectives(communicator, Collectives::Overlap::yes, wire);
    WeightStream weights(units, plan, store, collectives);
    fill_shards(store, plan);
    const auto crosses = [&](std::size_t unit) {
      const std::int64_t before = collectives.sent().between_nodes;
      weights.fetch(unit);
      weights.await(unit);
      expect_weights(weights.parameter({unit, 0}), unit);
      weights.release_all();
      return collectives.sent().between_nodes > before;
    };
    for (const std::size_t unit : {0u, 1u}) {
      EXPECT_TRUE(crosses(unit));
      EXPECT_FALSE(crosses(unit));
    }
    weights.drop_cache();
    EXPECT_TRUE(crosses(0));
    EXPECT_FALSE(crosses(1));
    weights.forget_copies();
    EXPECT_TRUE(crosses(1));
  });
}

}  // namespace
}  // namespace zeepo
