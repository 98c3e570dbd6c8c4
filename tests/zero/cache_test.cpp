// Which parameters are on the device when a pass begins: what the link has to carry tells.
#include "tests/support/errors.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/ops/activation.h"

namespace zeepo {
namespace {

// Units of one size, used one after another.
class Even : public Module {
 public:
  static constexpr std::int64_t kWidth = 64, kUnits = 8;
  Even() {
    for (std::int64_t i = 0; i < kUnits; ++i)
      blocks_.push_back(&child<GeluBlock>(fmt::format("block{}", i), kWidth, kWidth));
  }
  Tensor operator()(Tensor h, std::int64_t units = kUnits) {
    for (std::int64_t i = 0; i < units; ++i) h = (*blocks_[static_cast<std::size_t>(i)])(h);
    return h;
  }

 private:
  std::vector<GeluBlock*> blocks_;
};

constexpr std::int64_t kUnitBytes = (Even::kWidth * Even::kWidth + 2 * Even::kWidth) * 4;  // padded

const LowerTiers::Options kLower{.host_bytes = 16 << 20, .nvme_paths = {}};

class Caches : public testing::Test {
 protected:
  // Bytes carried up by each of some forward passes through the first `units`, a share of the parameters below.
  std::vector<std::int64_t> carried(CachePolicy policy, double below, std::int64_t units, std::int64_t prefetch = 1) {
    Session session({.threads = 1, .device_bytes = 16 << 20, .lower = kLower});
    Even model;
    EngineOptions options{.use = Use::infer, .prefetch_bytes = prefetch};
    options.placement.params.host = below;
    options.placement.cache = policy;
    ModelEngine engine(model, session.communicator(), options);
    engine.load(fill_weights);
    std::vector<std::int64_t> bytes;
    const std::vector<float> x(Even::kWidth, 0.5f);
    for (int pass = 0; pass < 4; ++pass) {
      const std::int64_t before = session.lower().carried().to_device;
      engine.infer([&] { outputs_.push_back(model(Tensor::from<float>(x, {1, Even::kWidth}), units).to_floats()); });
      bytes.push_back(session.lower().carried().to_device - before);
    }
    EXPECT_EQ(outputs_.back(), outputs_[outputs_.size() - 4]);
    return bytes;
  }
  std::vector<std::vector<float>> outputs_;
};

TEST_F(Caches, AFixedSetHitsInACycleThatIsLargerAndTheLastUsedNever) {
  const auto fixed = carried(CachePolicy::fixed, 0.5, Even::kUnits);
  const auto lru = carried(CachePolicy::lru, 0.5, Even::kUnits);
  for (std::size_t pass = 1; pass < fixed.size(); ++pass) {
    EXPECT_EQ(fixed[pass], Even::kUnits / 2 * kUnitBytes) << pass;
    EXPECT_EQ(lru[pass], Even::kUnits * kUnitBytes) << pass;
  }
  EXPECT_EQ(outputs_.front(), outputs_.back()) << "the policies differ";
}

TEST_F(Caches, TheLastUsedHitInACycleThatFits) {
  const auto fixed = carried(CachePolicy::fixed, 0.5, Even::kUnits / 2);
  const auto lru = carried(CachePolicy::lru, 0.5, Even::kUnits / 2);
  EXPECT_EQ(lru[0], Even::kUnits / 2 * kUnitBytes);
  for (std::size_t pass = 1; pass < lru.size(); ++pass) {
    EXPECT_EQ(lru[pass], 0) << pass;
    EXPECT_EQ(fixed[pass], Even::kUnits / 4 * kUnitBytes) << pass;
  }
}

// What is fetched between two passes counts with the second, and is fetched once.
TEST_F(Caches, APassRunsAheadOfTheNext) {
  Session session({.threads = 1, .device_bytes = 16 << 20, .lower = kLower});
  Even model;
  EngineOptions options{.use = Use::infer, .prefetch_bytes = 3 * kUnitBytes};
  options.placement.params.host = 1;
  ModelEngine engine(model, session.communicator(), options);
  engine.load(fill_weights);
  const std::vector<float> x(Even::kWidth, 0.5f);
  std::vector<std::vector<float>> outputs;
  const auto pass = [&](Engine::Then then) {
    const std::int64_t before = engine.moved().in_time.carried.to_device;
    engine.infer([&] { outputs.push_back(model(Tensor::from<float>(x, {1, Even::kWidth})).to_floats()); }, then);
    return engine.moved().in_time.carried.to_device - before;
  };
  const auto ahead = [&] { return session.lower().carried().to_device - engine.moved().in_time.carried.to_device; };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pass(Engine::Then::another), Even::kUnits * kUnitBytes);
    EXPECT_EQ(ahead(), 3 * kUnitBytes) << i;  // the pass has been recorded by then
  }
  EXPECT_EQ(pass(Engine::Then::nothing), Even::kUnits * kUnitBytes);
  EXPECT_EQ(ahead(), 0);
  EXPECT_EQ(outputs.front(), outputs.back());
}

TEST_F(Caches, NewWeightsReplaceWhatIsCached) {
  Session session({.threads = 1, .device_bytes = 16 << 20, .lower = kLower});
  Even model;
  EngineOptions options{.use = Use::infer};
  options.placement.params.host = 0.1;
  options.placement.cache = CachePolicy::lru;
  ModelEngine engine(model, session.communicator(), options);
  const auto output = [&](float weight) {
    engine.load([=](const WeightSlice&, std::int64_t, std::span<float> out) { std::ranges::fill(out, weight); });
    std::vector<float> result;
    const std::vector<float> x(Even::kWidth, 0.5f);
    engine.infer([&] { result = model(Tensor::from<float>(x, {1, Even::kWidth})).to_floats(); });
    return result;
  };
  const auto first = output(0.01f), second = output(0.02f);
  EXPECT_NE(first, second);
  EXPECT_EQ(output(0.01f), first);
}

// A cache must not outlive the weights.
TEST(CachedWeights, AreDroppedWhenTheBackwardPassStepsThem) {
  std::vector<float> seen;
  for (const CachePolicy policy : {CachePolicy::fixed, CachePolicy::lru}) {
    Session session({.threads = 1, .device_bytes = 16 << 20, .lower = kLower});
    Plain model;
    EngineOptions options{.clip = 0};
    options.step_phase = StepPhase::in_backward;
    options.placement.params.host = 0.3;
    options.placement.cache = policy;
    ModelEngine engine(model, session.communicator(), options);
    engine.load(fill_weights);
    for (int step = 0; step < 3; ++step) {
      engine.expect_rate(0.05);
      engine.micro_step([&] { return loss_of(model, Rows(step * 5, 5), DType::f32, step); });
      if (step == 2) engine.infer([&] { seen.push_back(loss_of(model, Rows(0, 3), DType::f32, 0).item()); });
      (void)engine.step(0.05);
    }
  }
  EXPECT_EQ(seen[0], seen[1]);
}

}  // namespace
}  // namespace zeepo
