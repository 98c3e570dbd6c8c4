#include "zeepo/comm/wire_collectives.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/comm/collective_checks.h"
#include "tests/support/errors.h"
#include "tests/support/forwarding_communicator.h"
#include "zeepo/comm/call.h"
#include "zeepo/comm/threads/threads_world.h"

namespace zeepo {
namespace {

const std::vector<std::vector<int>> kLayouts{{0, 0, 1, 1}, {0, 1, 0, 1}, {0, 0, 0}, {0, 1, 2}, {7, 3, 7, 7, 3}};
constexpr std::int64_t kShard = 384;

// f(communicator, stream, plan) on each rank of a world that stands as the layout says.
template <class F>
void on_ranks(const std::vector<int>& layout, F&& f) {
  ThreadsWorld world(static_cast<int>(layout.size()));
  run(world, [&](Communicator& communicator) {
    ThreadPool pool(1);
    CpuStream stream(pool);
    f(communicator, stream, wire_plan(NodeMap(layout), communicator.rank()));
  });
}

Bytes messages_for(const WirePlan& plan, WireType type, DType dtype) {
  return Bytes(message_bytes(type, dtype, kShard) * static_cast<std::size_t>(plan.nodes.ranks()));
}

TEST(WireCollectives, AnExactGatherHasTheBitsOfAllRanks) {
  for (const GatherWay way : {GatherWay::direct, GatherWay::ring})
    for (const auto& layout : kLayouts)
      on_ranks(layout, [&](Communicator& communicator, CpuStream& stream, const WirePlan& direct) {
        const WirePlan plan = wire_plan(direct.nodes, direct.rank, way);
        const int ranks = communicator.size();
        Values shard(DType::bf16, kShard, communicator.rank()), full(DType::bf16, kShard * ranks);
        gather_by_messages(communicator, stream, plan, {}, shard.view(), full.view(), {"weights", 1});
        for (int rank = 0; rank < ranks; ++rank) {
          Values wanted(DType::bf16, kShard, rank);
          EXPECT_EQ(std::memcmp(full.part(rank, ranks).data, wanted.bytes.data(), wanted.bytes.size()), 0);
        }
      });
}

TEST(WireCollectives, ACodedGatherAroundARingHasTheBitsOfOneThatGoesStraight) {
  for (const auto& layout : kLayouts)
    on_ranks(layout, [&](Communicator& communicator, CpuStream& stream, const WirePlan& plan) {
      const WirePlan ring = wire_plan(plan.nodes, plan.rank, GatherWay::ring);
      Values shard(DType::bf16, kShard, communicator.rank());
      std::vector<Bytes> got;
      for (const WirePlan* way : {&plan, &ring}) {
        Values full(DType::bf16, kShard * communicator.size());
        Bytes messages = messages_for(plan, WireType::int8, DType::bf16);
        Bytes copy(node_copy_bytes(plan, message_bytes(WireType::int8, DType::bf16, kShard)));
        gather_by_messages(communicator, stream, *way,
                           {.type = WireType::int8, .messages = messages, .node_copy = copy}, shard.view(), full.view(),
                           {"weights", 1});
        got.push_back(full.bytes);
        got.push_back(copy);
      }
      EXPECT_EQ(got[0], got[2]);
      EXPECT_EQ(got[1], got[3]);
    });
}

TEST(WireCollectives, ACodedGatherHasTheSameValuesOnEveryRankItsOwnToo) {
  for (const auto& layout : kLayouts) {
    std::vector<Bytes> got(layout.size());
    on_ranks(layout, [&](Communicator& communicator, CpuStream& stream, const WirePlan& plan) {
      Values full(DType::f32, kShard * communicator.size());
      Bytes messages = messages_for(plan, WireType::int8, DType::f32);
      const View own = full.part(communicator.rank(), communicator.size());
      Values shard(DType::f32, kShard, communicator.rank());
      std::memcpy(own.data, shard.bytes.data(), shard.bytes.size());  // in place
      gather_by_messages(communicator, stream, plan, {.type = WireType::int8, .messages = messages}, own, full.view(),
                         {"weights", 1});
      got[static_cast<std::size_t>(communicator.rank())] = full.bytes;
    });
    for (const Bytes& bytes : got) EXPECT_EQ(bytes, got[0]);
    for (std::size_t rank = 0; rank < layout.size(); ++rank) {
      Values shard(DType::f32, kShard, static_cast<int>(rank));
      for (std::int64_t i = 0; i < kShard; ++i) {
        float value = 0;
        std::memcpy(&value, got[0].data() + (rank * kShard + static_cast<std::size_t>(i)) * 4, 4);
        EXPECT_NEAR(value, element(shard.view(), i), 1024.0f / 127);
      }
    }
  }
}

TEST(WireCollectives, TheNodesCopyGivesTheSameBitsAndSendsNothingBetweenNodes) {
  for (const auto& layout : kLayouts)
    for (const WireType type : {WireType::same, WireType::int8})
      on_ranks(layout, [&](Communicator& communicator, CpuStream& stream, const WirePlan& plan) {
        if (plan.nodes.nodes() == 1) return;
        const std::size_t part = message_bytes(type, DType::bf16, kShard);
        Values shard(DType::bf16, kShard, communicator.rank()), first(DType::bf16, kShard * communicator.size());
        Values again(DType::bf16, kShard * communicator.size());
        Bytes messages = messages_for(plan, type, DType::bf16), copy(node_copy_bytes(plan, part));
        WireGather how{.type = type, .messages = messages, .node_copy = copy};
        gather_by_messages(communicator, stream, plan, how, shard.view(), first.view(), {"weights", 1});
        std::ranges::fill(messages, std::byte{0});
        how.from = GatherFrom::node_copy;
        gather_by_messages(communicator, stream, plan, how, shard.view(), again.view(), {"weights", 1});
        EXPECT_EQ(again.bytes, first.bytes);
        EXPECT_EQ(sent_by_gather(plan, GatherFrom::node_copy, part).between_nodes, 0);
      });
}

// What the sum would be if nothing were lost, within what the codes may lose.
TEST(WireCollectives, ACodedReductionSumsAllRanks) {
  for (const auto& layout : kLayouts)
    for (const WireType type : {WireType::int8, WireType::int4})
      for (const bool onto : {false, true})
        on_ranks(layout, [&](Communicator& communicator, CpuStream& stream, const WirePlan& plan) {
          const int ranks = communicator.size();
          Values full(DType::bf16, kShard * ranks, communicator.rank()), shard(DType::f32, kShard, 77);
          Values before = shard;
          Bytes scratch(reduce_scratch_bytes(plan, type, kShard));
          reduce_by_messages(communicator, stream, plan, type, full.view(), scratch, shard.view(), {}, {"gradients", 1},
                             {.onto = onto});
          const float step = 1024.0f / (type == WireType::int8 ? 127 : 7);
          for (std::int64_t i = 0; i < kShard; ++i) {
            float sum = onto ? element(before.view(), i) : 0;
            for (int rank = 0; rank < ranks; ++rank) {
              Values other(DType::bf16, kShard * ranks, rank);
              sum += element(other.view(), communicator.rank() * kShard + i);
            }
            EXPECT_NEAR(element(shard.view(), i), sum, step * static_cast<float>(ranks)) << i;
          }
        });
}

TEST(WireCollectives, AReductionIsTheSameEachTimeAndInPlace) {
  on_ranks({0, 0, 1, 1}, [&](Communicator& communicator, CpuStream& stream, const WirePlan& plan) {
    Bytes first;
    for (const bool in_place : {false, true}) {
      Values full(DType::f32, kShard * 4, communicator.rank()), apart(DType::f32, kShard);
      Bytes scratch(reduce_scratch_bytes(plan, WireType::int4, kShard));
      const View shard = in_place ? full.part(communicator.rank(), 4) : apart.view();
      reduce_by_messages(communicator, stream, plan, WireType::int4, full.view(), scratch, shard, {}, {"gradients", 1},
                         {});
      const Bytes got(shard.as<std::byte>(), shard.as<std::byte>() + shard.bytes());
      if (!in_place) first = got;
      EXPECT_EQ(got, first);
    }
  });
}

TEST(WireCollectives, AnInfiniteGradientIsNotLost) {
  on_ranks({0, 0, 1, 1}, [&](Communicator& communicator, CpuStream& stream, const WirePlan& plan) {
    Values full(DType::f32, kShard * 4, communicator.rank()), shard(DType::f32, kShard);
    if (communicator.rank() == 3) set_element(full.view(), 5, INFINITY);  // of rank 0's shard
    Bytes scratch(reduce_scratch_bytes(plan, WireType::int4, kShard));
    reduce_by_messages(communicator, stream, plan, WireType::int4, full.view(), scratch, shard.view(), {},
                       {"gradients", 1}, {});
    EXPECT_EQ(std::isfinite(element(shard.view(), 5)), communicator.rank() != 0);
  });
}

// A rank that sends what another does not expect ends in an error on each, never a hang.
TEST(WireCollectives, RanksThatMeanDifferentThingsAreTold) {
  const auto told = [](const auto& call) {
    ThreadsWorld world(2);
    return error_text([&] {
      run(world, [&](Communicator& communicator) {
        ThreadPool pool(1);
        CpuStream stream(pool);
        Values shard(DType::f32, kShard, 0), full(DType::f32, kShard * 2);
        call(communicator, stream, wire_plan(NodeMap({0, 1}), communicator.rank()), shard.view(), full.view());
      });
    });
  };
  const auto gather = [](Communicator& communicator, CpuStream& stream, const WirePlan& plan, WireType type,
                         const View& shard, const View& full, std::int64_t id) {
    Bytes messages = messages_for(plan, type, DType::f32);
    gather_by_messages(communicator, stream, plan, {.type = type, .messages = messages}, shard, full,
                       {"weights of block 7", id});
  };
  const std::string types = told([&](Communicator& c, CpuStream& s, const WirePlan& p, View shard, View full) {
    gather(c, s, p, c.rank() == 0 ? WireType::int8 : WireType::int4, shard, full, 7);
  });
  EXPECT_TRUE(names(types, "rank 1", "int8", "int4", "weights of block 7")) << types;
  const std::string units = told([&](Communicator& c, CpuStream& s, const WirePlan& p, View shard, View full) {
    gather(c, s, p, WireType::int8, shard, full, c.rank());
  });
  EXPECT_TRUE(names(units, "rank 1", "id 1", "id 0")) << units;
}

TEST(WireCollectives, OnlyTheLaterExchangesOfACollectiveGoOn) {
  using enum ExchangePhase;
  const auto header = [](ExchangePhase phase, std::int64_t id, std::size_t bytes = 100, std::int64_t step = 0) {
    CallHeader made = exchange_call(WireType::int8, phase, bytes, {"weights", id}).header;
    made.step = step;
    return made;
  };
  EXPECT_TRUE(continues(header(gather_between, 1), header(gather_within, 1)));
  EXPECT_TRUE(continues(header(reduce_within, 1), header(reduce_between, 1)));
  EXPECT_FALSE(continues(header(gather_between, 1), header(gather_within, 2)));
  EXPECT_FALSE(continues(header(gather_between, 1), header(gather_within, 1, 200)));
  EXPECT_FALSE(continues(header(gather_within, 1), header(gather_within, 1)));
  EXPECT_FALSE(continues(header(gather_between, 1), header(reduce_between, 1)));
  EXPECT_FALSE(continues({}, header(gather_within, 1)));
  EXPECT_TRUE(continues(header(gather_between, 1), header(gather_between, 1, 100, 1)));
  EXPECT_TRUE(continues(header(gather_between, 1, 100, 1), header(gather_between, 1, 100, 2)));
  EXPECT_TRUE(continues(header(gather_between, 1, 100, 2), header(gather_within, 1)));
  EXPECT_FALSE(continues(header(gather_between, 1), header(gather_between, 1, 100, 2)));
  EXPECT_FALSE(continues(header(gather_between, 1, 100, 2), header(gather_between, 1)));
  EXPECT_FALSE(continues(header(gather_between, 1), header(gather_between, 2, 100, 1)));
}

// A communicator whose messages lose a bit on the way.
class DamagingCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;
  std::string_view name() const override { return "damaging"; }
  void exchange(const Call& call, std::span<const Outgoing> out, std::span<const Incoming> in) override {
    ForwardingCommunicator::exchange(call, out, in);
    for (const Incoming& message : in)
      if (message.from == 1) message.bytes[message.bytes.size() / 2] ^= std::byte{16};
  }
};

TEST(WireCollectives, ADamagedMessageNamesItsRankAndUnit) {
  ThreadsWorld world(2);
  const std::string text = error_text([&] {
    run(world, [&](Communicator& inner) {
      DamagingCommunicator communicator(inner);
      ThreadPool pool(1);
      CpuStream stream(pool);
      const WirePlan plan = wire_plan(NodeMap({0, 0}), inner.rank());
      Values full(DType::f32, kShard * 2, inner.rank()), shard(DType::f32, kShard);
      Bytes scratch(reduce_scratch_bytes(plan, WireType::int8, kShard));
      reduce_by_messages(communicator, stream, plan, WireType::int8, full.view(), scratch, shard.view(), {},
                         {"gradients of block 2", 2}, {});
    });
  });
  EXPECT_TRUE(names(text, "rank 1", "gradients of block 2", "checksum")) << text;
}

}  // namespace
}  // namespace zeepo
