// Weights by name and range, without an engine: on any number of ranks, wherever states live.
#include "zeepo/zero/state_io.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/room_rig.h"

namespace zeepo {
namespace {

// No 16-bit type has it: its low bits are read too.
float value_of(const std::string& name, std::int64_t i) {
  return static_cast<float>(i % 10007) / 3 - static_cast<float>(name.size() + static_cast<std::size_t>(name[4])) / 7;
}

void fill_values(const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = value_of(slice.name, begin + static_cast<std::int64_t>(i));
}

std::vector<float> values_of(const std::string& name, std::int64_t begin, std::size_t n) {
  std::vector<float> values(n);
  for (std::size_t i = 0; i < n; ++i) values[i] = value_of(name, begin + static_cast<std::int64_t>(i));
  return values;
}

// The first unit has several pieces on each of three ranks; the names of the others sort otherwise than they stand.
const UnitPlan kUnits = plain_units({8000, 30, 1, 1, 1, 1, 1, 1, 1, 1, 20});
constexpr std::int64_t kPiece = EngineOptions::kPieceAlignment;
const std::string kLong = "unit0.matrix";

struct Placed {
  const char* name;
  Shares shares;
};
const Placed kPlaced[] = {{"device", {}}, {"host", {.host = 1}}, {"nvme", {.nvme = 1}}};

// Calls f(io, communicator) on every rank, for each number of ranks and each placement.
template <class F>
void everywhere(F&& f) {
  for (const int ranks : {1, 3})
    for (const Placed& placed : kPlaced) {
      const TestDirectory files;
      ThreadsWorld world(ranks);
      run(world, [&](Communicator& communicator) {
        SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, placed.name));
        Session session(small_session(files.path()), communicator);
        EngineOptions options{.dtype = DType::bf16, .stage = 3};
        options.piece_elements = kPiece;
        options.placement.params = options.placement.optimizer = placed.shares;
        const StatePlan plan = plan_states(kUnits, options, place_of(communicator));
        StateStore store(kUnits, plan);
        Collectives collectives(communicator, Collectives::Overlap::yes);
        StateIo io(kUnits, plan, store, collectives);
        f(io, communicator);
      });
    }
}

TEST(StateIo, ReadsRangesAcrossPiecesAndShards) {
  everywhere([](StateIo& io, Communicator&) {
    io.load(fill_values);
    const std::int64_t elements = Shape{8000, 128}.elements();
    for (const auto& [begin, end] : {std::pair<std::int64_t, std::int64_t>{0, elements},
                                     {kPiece - 1, kPiece + 1},
                                     {kPiece / 2, 3 * kPiece + 5},
                                     {elements / 3 - 9, elements / 3 + 9},
                                     {elements - 1, elements},
                                     {17, 17}}) {
      std::vector<float> values(static_cast<std::size_t>(end - begin));
      io.read(kLong, begin, values);
      EXPECT_EQ(values, values_of(kLong, begin, values.size())) << begin << " to " << end;
    }
    std::vector<float> vector(100);
    io.read("unit10.vector", 0, vector);
    EXPECT_EQ(vector, values_of("unit10.vector", 0, 100));
  });
}

TEST(StateIo, AsksEachRankForItsShardOnce) {
  std::mutex mutex;
  std::multiset<std::pair<std::string, std::int64_t>> asked;  // every 1,000th element
  everywhere([&](StateIo& io, Communicator&) {
    io.load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      fill_values(slice, begin, out);
      const std::lock_guard lock(mutex);
      for (std::int64_t i = (begin + 999) / 1000 * 1000; i < begin + std::ssize(out); i += 1000)
        asked.emplace(slice.name, i);
    });
  });
  for (const std::int64_t i : {0, 131'000, 341'000, 342'000, 1'023'000})
    EXPECT_EQ(asked.count({kLong, i}), 2 * std::size(kPlaced)) << i;  // once for each number of ranks
}

TEST(StateIo, NamesAreInOrder) {
  everywhere([](StateIo& io, Communicator&) {
    const auto slices = io.slices();
    ASSERT_EQ(slices.size(), 22u);
    EXPECT_TRUE(std::ranges::is_sorted(slices, {}, &WeightSlice::name));
    EXPECT_EQ(slices[0].name, kLong);
    EXPECT_EQ(slices[0].shape, (Shape{8000, 128}));
    EXPECT_EQ(slices[4].name, "unit10.matrix");  // after unit1's
  });
}

TEST(StateIo, HashesAreEqualEverywhereAndTellWeightsApart) {
  std::mutex mutex;
  std::set<std::string> hashes, others;
  everywhere([&](StateIo& io, Communicator&) {
    io.load(fill_values);
    std::vector<std::string> looked;
    const std::string hash = io.hash([&](const std::string& name, std::int64_t begin, std::span<const float> values) {
      if (looked.empty() || looked.back() != name) looked.push_back(name);
      EXPECT_EQ(values.back(), value_of(name, begin + std::ssize(values) - 1));
    });
    EXPECT_EQ(looked.size(), 22u);
    EXPECT_TRUE(std::ranges::is_sorted(looked));
    io.load([](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      fill_values(slice, begin, out);
      constexpr std::int64_t kChanged = 500'000;
      if (slice.name == kLong && begin <= kChanged && kChanged < begin + std::ssize(out))
        out[static_cast<std::size_t>(kChanged - begin)] += 0.01f;  // below what bf16 can tell
    });
    const std::string other = io.hash();
    const std::lock_guard lock(mutex);
    hashes.insert(hash);
    others.insert(other);
  });
  EXPECT_EQ(hashes.size(), 1u);
  EXPECT_EQ(others.size(), 1u);
  EXPECT_NE(hashes, others);
}

TEST(StateIo, RefusesAnUnknownName) {
  everywhere([](StateIo& io, Communicator&) {
    std::vector<float> values(1);
    EXPECT_TRUE(names(error_text([&] { io.read("unit11.matrix", 0, values); }), "no weight is named unit11.matrix"));
  });
}

}  // namespace
}  // namespace zeepo
