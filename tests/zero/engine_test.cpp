#include "zeepo/binding/model_engine.h"

#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "tests/support/errors.h"
#include "tests/support/test_device.h"
#include "zeepo/nn/layers.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/loss.h"
#include "zeepo/zero/session.h"

namespace zeepo {
namespace {

constexpr std::int64_t kInputs = 5, kInner = 7, kOutputs = 3;

class Net : public Module {
 public:
  Net()
      : first(child<Linear>("first", kInputs, kInner)),
        unused(child<Linear>("unused", 4, 4)),
        second(child<Linear>("second", kInner, kOutputs)) {}
  Tensor forward(const Tensor& x) override { return second(gelu(first(x))); }

  Linear &first, &unused, &second;
};

// Each weight of the slice by its index and name, the same for every run.
void fill_slice(const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
  const RngKey key = mix(RngKey{7}, slice.name);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.5f * normal(key, static_cast<std::uint64_t>(begin) + i);
}

struct Batch {
  std::vector<float> x;
  std::vector<std::int32_t> targets;
  std::int64_t rows() const { return static_cast<std::int64_t>(targets.size()); }
};

Batch make_batch(std::int64_t rows, std::uint64_t seed) {
  Batch batch{random_floats(rows * kInputs, seed), {}};
  for (std::int64_t i = 0; i < rows; ++i) batch.targets.push_back(static_cast<std::int32_t>((i + 1) % kOutputs));
  return batch;
}

// The one device of this thread; runs that live at the same time share it.
std::shared_ptr<Session> common_session() {
  static std::weak_ptr<Session> current;
  auto session = current.lock();
  if (!session) current = session = std::make_shared<Session>(Session::Options{.threads = 2, .device_bytes = 1 << 24});
  return session;
}

// One engine on a Net of its own.
class NetRun {
 public:
  explicit NetRun(const EngineOptions& options) : session_(common_session()), options_(options) {}

  void start() {
    engine_.emplace(net, session_->communicator(), options_);
    engine_->load(fill_slice);
  }
  Tensor as_input(const std::vector<float>& values, Shape shape) const {
    if (options_.dtype == DType::f32) return Tensor::from<float>(values, shape);
    if (options_.dtype == DType::bf16) return narrowed<bf16>(values, shape);
    return narrowed<f16>(values, shape);
  }
  void micro_step(const Batch& batch) {
    engine_->micro_step([&] {
      return cross_entropy(net(as_input(batch.x, {batch.rows(), kInputs})),
                           Tensor::from<std::int32_t>(batch.targets, {batch.rows()}));
    });
  }
  StepResult step(const Batch& batch, double lr) {
    micro_step(batch);
    return engine_->step(lr);
  }
  std::vector<float> weights(const std::string& name) {
    for (const auto& slice : engine_->slices())
      if (slice.name == name) {
        std::vector<float> values(static_cast<std::size_t>(slice.shape.elements()));
        engine_->read(name, 0, values);
        return values;
      }
    ADD_FAILURE() << name;
    return {};
  }
  std::vector<float> all_weights() {
    std::vector<float> all;
    for (const auto& slice : engine_->slices()) {
      const auto values = weights(slice.name);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }
  ModelEngine& engine() { return *engine_; }
  ArenaTier& memory() { return session_->memory(); }

  Net net;

 private:
  template <class T>
  static Tensor narrowed(const std::vector<float>& values, Shape shape) {
    std::vector<T> narrow;
    for (const float value : values) narrow.push_back(from_float<T>(value));
    return Tensor::from<T>(narrow, shape);
  }

  std::shared_ptr<Session> session_;
  EngineOptions options_;
  std::optional<ModelEngine> engine_;
};

const OptimizerOptions kPlainSgd{.type = OptimizerType::sgd, .momentum = 0, .weight_decay = 0};

TEST(Engine, UnusedParametersHaveAZeroGradient) {
  for (const std::int64_t accumulation : {1, 2}) {
    NetRun run({.optimizer = kPlainSgd, .accumulation = accumulation, .clip = 0});
    run.start();
    const auto before = run.weights("unused.weight"), first = run.weights("first.weight");
    for (std::int64_t m = 0; m < accumulation; ++m) run.micro_step(make_batch(4, 1));
    (void)run.engine().step(0.1);
    EXPECT_EQ(run.weights("unused.weight"), before);
    EXPECT_NE(run.weights("first.weight"), first);
  }
}

TEST(Engine, FrozenParametersStayToTheBitAndDoNotCount) {
  for (const std::int64_t accumulation : {1, 2}) {
    NetRun run({.accumulation = accumulation}), free({.accumulation = accumulation});
    for (const auto& p : run.net.first.own_parameters()) p->leaf().set_trainable(false);
    run.start();
    const auto weight = run.weights("first.weight"), bias = run.weights("first.bias"),
               second = run.weights("second.weight");
    for (std::int64_t m = 0; m < accumulation; ++m) run.micro_step(make_batch(4, 1));
    const auto result = run.engine().step(0.1);
    EXPECT_EQ(run.weights("first.weight"), weight);
    EXPECT_EQ(run.weights("first.bias"), bias);
    EXPECT_NE(run.weights("second.weight"), second);
    free.start();
    for (std::int64_t m = 0; m < accumulation; ++m) free.micro_step(make_batch(4, 1));
    const auto full = free.engine().step(0.1);
    EXPECT_EQ(result.loss, full.loss);
    EXPECT_LT(result.grad_norm, full.grad_norm);
  }
}

TEST(Engine, OneFrozenParameterAmongTrainedOnesStays) {
  NetRun run({});
  run.net.first.own_parameters()[0]->leaf().set_trainable(false);  // the weight; its bias is trained
  run.start();
  const auto weight = run.weights("first.weight"), bias = run.weights("first.bias");
  (void)run.step(make_batch(4, 1), 0.1);
  EXPECT_EQ(run.weights("first.weight"), weight);
  EXPECT_NE(run.weights("first.bias"), bias);
}

TEST(Engine, AccumulationEqualsTheLargerBatch) {
  const Batch whole = make_batch(6, 1);
  NetRun large({.optimizer = kPlainSgd}), small({.optimizer = kPlainSgd, .accumulation = 3});
  large.start();
  small.start();
  for (int step = 0; step < 5; ++step) {
    const auto expected = large.step(whole, 0.1);
    for (std::int64_t m = 0; m < 3; ++m) {
      const auto x = whole.x.begin() + m * 2 * kInputs;
      small.micro_step({{x, x + 2 * kInputs}, {whole.targets.begin() + m * 2, whole.targets.begin() + m * 2 + 2}});
    }
    const auto result = small.engine().step(0.1);
    EXPECT_NEAR(result.loss, expected.loss, 1e-6);
    EXPECT_NEAR(result.grad_norm, expected.grad_norm, 1e-6);
  }
  const auto a = large.all_weights(), b = small.all_weights();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 2e-6) << i;
}

// One unit visited twice in a pass: its gradient is complete, and reduced, only after the second visit back.
TEST(Engine, AUnitUsedTwiceSumsBothGradients) {
  class Twice : public Module {
   public:
    Twice() : again(child<Linear>("again", kInputs, kInputs)), last(child<Linear>("last", kInputs, kOutputs)) {}
    Tensor forward(const Tensor& x) override { return last(gelu(again(gelu(again(x))))); }
    Linear &again, &last;
  };
  const Batch batch = make_batch(4, 1);
  // The gradient by engine: plain SGD with a rate of 1 subtracts it.
  const auto gradient = [&](std::int64_t accumulation, bool differences) {
    const auto session = common_session();
    Twice model;
    ModelEngine engine(model, session->communicator(),
                       {.optimizer = kPlainSgd, .accumulation = accumulation, .clip = 0});
    const auto loss = [&] {
      return cross_entropy(model(Tensor::from<float>(batch.x, {4, kInputs})),
                           Tensor::from<std::int32_t>(batch.targets, {4}));
    };
    std::vector<float> result, before(kInputs * kInputs), after(kInputs * kInputs);
    engine.load(fill_slice);
    engine.read("again.weight", 0, before);
    if (!differences) {
      for (std::int64_t m = 0; m < accumulation; ++m) engine.micro_step(loss);
      (void)engine.step(1);
      engine.read("again.weight", 0, after);
      for (std::size_t i = 0; i < before.size(); ++i) result.push_back(before[i] - after[i]);
      return result;
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      const auto moved = [&](float by) {
        engine.load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
          fill_slice(slice, begin, out);
          if (slice.name == "again.weight") out[i] += by;
        });
        double value = 0;
        engine.infer([&] { value = loss().item(); });
        return value;
      };
      result.push_back(static_cast<float>((moved(0.02f) - moved(-0.02f)) / 0.04));
    }
    return result;
  };
  const auto expected = gradient(1, true), one = gradient(1, false), two = gradient(2, false);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(one[i], expected[i], 5e-4) << i;
    EXPECT_NEAR(two[i], expected[i], 5e-4) << i;
  }
}

TEST(Engine, ClippingScalesTheStepToTheLimit) {
  const auto step_length = [](float clip) {
    NetRun run({.optimizer = kPlainSgd, .clip = clip});
    run.start();
    const auto before = run.all_weights();
    const auto result = run.step(make_batch(4, 1), 1);
    const auto after = run.all_weights();
    double squares = 0;
    for (std::size_t i = 0; i < before.size(); ++i)
      squares += (static_cast<double>(after[i]) - before[i]) * (static_cast<double>(after[i]) - before[i]);
    return std::pair(std::sqrt(squares), static_cast<double>(result.grad_norm));
  };
  const auto [free, norm] = step_length(0);
  EXPECT_NEAR(free, norm, 1e-5);
  ASSERT_GT(norm, 0.1);
  const auto [clipped, same_norm] = step_length(0.05f);
  EXPECT_EQ(same_norm, norm);  // before clipping
  EXPECT_NEAR(clipped, 0.05, 1e-5);
  EXPECT_NEAR(step_length(1000).first, norm, 1e-5);
}

TEST(Engine, DecayReachesAllParametersOrMatricesAlone) {
  for (const Decay decay : {Decay::all, Decay::matrices}) {
    NetRun run({.optimizer = {.weight_decay = 0.5f}, .decay = decay});
    run.start();
    const auto weight = run.weights("unused.weight"), bias = run.weights("unused.bias");  // no gradient: decay alone
    (void)run.step(make_batch(4, 1), 0.1);
    const auto weight_after = run.weights("unused.weight"), bias_after = run.weights("unused.bias");
    for (std::size_t i = 0; i < weight.size(); ++i) EXPECT_NEAR(weight_after[i], 0.95f * weight[i], 1e-6);
    for (std::size_t i = 0; i < bias.size(); ++i)
      EXPECT_NEAR(bias_after[i], decay == Decay::all ? 0.95f * bias[i] : bias[i], 1e-6);
  }
}

Batch infinite_batch() {
  Batch batch = make_batch(4, 1);
  batch.x[2] = std::numeric_limits<float>::infinity();
  return batch;
}

// A skipped step must leave weights, moments and the count of steps as they were: what follows shows all three.
TEST(Engine, AnOverflowInFp16ChangesNothingButTheScale) {
  for (const std::int64_t accumulation : {1, 2}) {
    const auto options = [&](float scale) {
      return EngineOptions{.dtype = DType::f16,
                           .accumulation = accumulation,
                           .loss_scale = {.initial = scale, .least = 1, .patience = 1000}};
    };
    const auto step = [&](NetRun& run, const Batch& batch) {
      for (std::int64_t m = 0; m < accumulation; ++m) run.micro_step(m == 0 ? batch : make_batch(4, 9));
      return run.engine().step(0.01);
    };
    NetRun skipping(options(256)), smooth(options(128));
    skipping.start();
    smooth.start();
    const auto hash = skipping.engine().weights_hash();
    const auto result = step(skipping, infinite_batch());
    EXPECT_TRUE(result.skipped);
    EXPECT_EQ(result.loss_scale, 256);
    EXPECT_EQ(skipping.engine().weights_hash(), hash);
    for (std::uint64_t i = 0; i < 3; ++i) {
      const auto after = step(skipping, make_batch(4, i)), expected = step(smooth, make_batch(4, i));
      EXPECT_FALSE(after.skipped);
      EXPECT_EQ(after.loss_scale, 128);
      EXPECT_EQ(after.loss, expected.loss);
      EXPECT_EQ(skipping.engine().weights_hash(), smooth.engine().weights_hash()) << "step " << i;
    }
  }
}

TEST(Engine, WithoutALossScaleAnInfiniteGradientIsAnErrorAndChangesNothing) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    NetRun run({.dtype = dtype}), smooth({.dtype = dtype});
    run.start();
    smooth.start();
    const auto hash = run.engine().weights_hash();
    EXPECT_TRUE(
        names(error_text([&] { (void)run.step(infinite_batch(), 0.1); }), "step", "infinite or not a number", "--lr"));
    EXPECT_EQ(run.engine().weights_hash(), hash);
    (void)run.step(make_batch(4, 1), 0.1);
    (void)smooth.step(make_batch(4, 1), 0.1);
    EXPECT_EQ(run.engine().weights_hash(), smooth.engine().weights_hash());
  }
}

// A target that the model holds for impossible: an infinite loss, and gradients as of any other.
TEST(Engine, AnInfiniteLossIsAnErrorEvenWithFiniteGradients) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    NetRun run({.dtype = dtype, .loss_scale = {.initial = 1}});
    run.start();
    run.engine().load([](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      fill_slice(slice, begin, out);
      if (slice.name == "second.bias" && begin == 0) out[0] = -std::numeric_limits<float>::infinity();
    });
    Batch batch = make_batch(4, 1);
    for (auto& target : batch.targets) target = 0;
    EXPECT_TRUE(names(error_text([&] { (void)run.step(batch, 0.1); }), "step: the loss is inf", "--lr"));
  }
}

TEST(Engine, WeightsOfAnyBitsComeBackExactly) {
  const auto any_finite = [](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
    const RngKey key = mix(RngKey{3}, slice.name);
    for (std::size_t i = 0; i < out.size(); ++i) {
      std::uint32_t bits = philox(key, static_cast<std::uint64_t>(begin) + i)[0];
      if ((bits & 0x7f800000u) == 0x7f800000u) bits &= ~0x00800000u;  // neither infinite nor NaN
      out[i] = std::bit_cast<float>(bits);
    }
  };
  std::string expected;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    NetRun run({.dtype = dtype});
    run.start();
    run.engine().load(any_finite);
    for (const auto& slice : run.engine().slices()) {
      std::vector<float> given(static_cast<std::size_t>(slice.shape.elements()));
      any_finite(slice, 0, given);
      const auto read = run.weights(slice.name);
      for (std::size_t i = 0; i < given.size(); ++i)
        ASSERT_EQ(std::bit_cast<std::uint32_t>(read[i]), std::bit_cast<std::uint32_t>(given[i]))
            << name_of(dtype) << " " << slice.name << "[" << i << "]";
      std::vector<float> middle(2);
      run.engine().read(slice.name, 1, middle);
      EXPECT_EQ(middle[0], given[1]);
    }
    if (expected.empty()) expected = run.engine().weights_hash();
    EXPECT_EQ(run.engine().weights_hash(), expected) << name_of(dtype);  // it is the exact weights that count
  }
}

TEST(Engine, TheHashSeesEveryWeightAndItsName) {
  NetRun run({});
  run.start();
  const auto hash = run.engine().weights_hash();
  EXPECT_EQ(hash.size(), 32u);
  EXPECT_EQ(run.engine().weights_hash(), hash);
  const auto with = [&](const std::string& name, std::int64_t index) {
    run.engine().load([&](const WeightSlice& slice, std::int64_t begin, std::span<float> out) {
      fill_slice(slice, begin, out);
      if (slice.name == name)
        out[static_cast<std::size_t>(index)] = std::nextafter(out[static_cast<std::size_t>(index)], 9.0f);
    });
    return run.engine().weights_hash();
  };
  EXPECT_NE(with("first.weight", 0), hash);
  EXPECT_NE(with("first.weight", kInputs * kInner - 1), hash);
  EXPECT_NE(with("second.bias", kOutputs - 1), hash);
  EXPECT_EQ(with("", 0), hash);
}

TEST(Engine, MemoryInUseDoesNotGrow) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const std::int64_t accumulation : {1, 2}) {
      NetRun run({.dtype = dtype, .accumulation = accumulation});
      run.start();
      std::vector<std::int64_t> in_use, peaks;
      for (int step = 0; step < 4; ++step) {
        run.memory().restart_peak();
        for (std::int64_t m = 0; m < accumulation; ++m) run.micro_step(make_batch(4, 1));
        (void)run.engine().step(0.01);
        in_use.push_back(run.memory().current().total);
        peaks.push_back(run.memory().peak().total);
      }
      for (std::size_t i = 1; i < in_use.size(); ++i) {
        EXPECT_EQ(in_use[i], in_use[0]);
        EXPECT_EQ(peaks[i], peaks[0]);
      }
    }
}

TEST(Engine, BytesAreCountedByWhatTheyAreFor) {
  std::int64_t padded = 0;
  {
    Net net;
    for (const auto& unit : plan_units(net).units) padded += unit.elements;
  }
  const auto in_use = [](const EngineOptions& options) {
    NetRun run(options);
    run.start();
    return run.memory().current();
  };
  const Usage fp32 = in_use({}), bf16 = in_use({.dtype = DType::bf16}), fp16 = in_use({.dtype = DType::f16});
  EXPECT_EQ(fp32[Kind::params], 4 * padded);
  EXPECT_EQ(fp32[Kind::grads], 4 * padded);
  EXPECT_EQ(fp32[Kind::optimizer], 8 * padded);
  EXPECT_EQ(bf16[Kind::params] + bf16[Kind::grads] + bf16[Kind::optimizer], 14 * padded);
  EXPECT_EQ(fp16[Kind::params] + fp16[Kind::grads] + fp16[Kind::optimizer], 16 * padded);
  EXPECT_EQ(in_use({.dtype = DType::bf16, .accumulation = 2})[Kind::grads], 4 * padded);
  const Usage infer = in_use({.use = Use::infer, .dtype = DType::bf16});
  EXPECT_EQ(infer.total, 2 * padded);
}

TEST(Engine, CallsOutOfOrderAreErrors) {
  NetRun run({.accumulation = 2});
  run.start();
  EXPECT_TRUE(names(error_text([&] { (void)run.engine().step(0.1); }), "0 of 2"));
  run.micro_step(make_batch(2, 1));
  EXPECT_TRUE(names(error_text([&] { (void)run.engine().step(0.1); }), "1 of 2"));
  run.micro_step(make_batch(2, 1));
  EXPECT_TRUE(names(error_text([&] { run.micro_step(make_batch(2, 1)); }), "more than 2"));
  (void)run.engine().step(0.1);
  std::vector<float> out(1);
  EXPECT_TRUE(names(error_text([&] { run.engine().read("nowhere", 0, out); }), "nowhere"));
  NetRun infer({.use = Use::infer});
  infer.start();
  EXPECT_TRUE(names(error_text([&] { infer.micro_step(make_batch(2, 1)); }), "inference"));
  NetRun none({.accumulation = 0});
  EXPECT_TRUE(names(error_text([&] { none.start(); }), "accumulation 0"));
}

TEST(Engine, TwoParametersOfOneNameAreAnError) {
  class Twice : public Module {
   public:
    Twice() {
      child<RmsNorm>("norm", 3);
      child<RmsNorm>("norm", 3);
    }
  };
  Session session({.threads = 1, .device_bytes = 1 << 20});
  Twice model;
  EXPECT_TRUE(names(error_text([&] { ModelEngine(model, session.communicator(), {}); }), "norm.weight"));
}

TEST(Engine, EvaluationGivesTheLossAndChangesNothing) {
  NetRun run({});
  run.start();
  const Batch batch = make_batch(4, 1);
  const auto hash = run.engine().weights_hash();
  float loss = 0;
  run.engine().infer([&] {
    const Tensor logits = run.net(run.as_input(batch.x, {4, kInputs}));
    loss = cross_entropy(logits, Tensor::from<std::int32_t>(batch.targets, {4})).item();
  });
  EXPECT_EQ(run.engine().weights_hash(), hash);
  EXPECT_EQ(run.step(batch, 0).loss, loss);
}

TEST(Engine, WhenItIsGoneTheModelHasNoMemory) {
  Net net;
  Session session({.threads = 1, .device_bytes = 1 << 20});
  {
    ModelEngine engine(net, session.communicator(), {});
    engine.load(fill_slice);
  }
  EXPECT_EQ(session.memory().current().total, 0);
  EXPECT_TRUE(names(error_text([&] { (void)net(random_tensor({1, kInputs}, 1)); }), "no memory"));
}

}  // namespace
}  // namespace zeepo
