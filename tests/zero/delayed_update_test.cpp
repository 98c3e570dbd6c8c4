// The delayed update against a simulation of its definition, and in every place.
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {
namespace {

constexpr double kRate = 0.05;
constexpr std::int64_t kRows = 5;

using Values = std::map<std::string, std::vector<float>>;

// Loss and gradients of a model at given weights, without an engine.
class Gradients : private Leaf::Store {
 public:
  float compute(Plain& model, const Values& weights, std::int64_t step, Values& gradients) {
    tensors_.clear();
    const auto parameters = named_parameters(model);
    for (const auto& [prefix, parameter] : parameters) {
      parameter->leaf().set_store(this);
      parameter->leaf().set_current(Tensor::from<float>(weights.at(name_of(prefix, *parameter)), parameter->shape()));
    }
    Tape tape;
    Tensor loss;
    {
      const TapeScope scope(&tape);
      loss = loss_of(model, Rows(step * kRows, kRows), DType::f32, step);
    }
    tape.backward(loss);
    for (const auto& [prefix, parameter] : parameters) {
      gradients[name_of(prefix, *parameter)] = tensors_.at(&parameter->leaf()).to_floats();
      parameter->leaf().take();
      parameter->leaf().set_current({});
      parameter->leaf().set_store(nullptr);
    }
    return loss.item();
  }
  static std::string name_of(const std::string& prefix, const Parameter& parameter) {
    return prefix + parameter.slices()[0].name;
  }

 private:
  Gradient::Target gradient_of(const Leaf& leaf) override {
    return {tensors_[&leaf] = Tensor(leaf.shape(), DType::f32, Kind::working), Write::overwrite};
  }
  std::map<const Leaf*, Tensor> tensors_;
};

struct Outcome {
  std::vector<float> losses, norms;
  Values weights;
};

// Step t computes with the weights that have the updates up to t − 2, or t − 1 while t − 1 is not delayed.
Outcome simulate(int steps, std::int64_t delay_after) {
  Session session({.threads = 1, .device_bytes = 1 << 20});
  Plain model;
  Outcome result;
  Values first, second;
  for (const auto& [prefix, parameter] : named_parameters(model)) {
    const std::string name = Gradients::name_of(prefix, *parameter);
    result.weights[name] = first_weights({name, parameter->shape(), parameter});
    first[name] = second[name] = std::vector<float>(result.weights[name].size());
  }
  Gradients of_model;
  StepControl control{.norm = 0, .grad_factor = 1, .skip = 0};
  const auto update = [&](Values gradients, std::int64_t t) {
    for (auto& [name, values] : result.weights) {
      const auto view = [n = static_cast<std::int64_t>(values.size())](std::vector<float>& all) {
        return View{all.data(), DType::f32, {n}};
      };
      const std::vector<Moment> moments{view(first[name]), view(second[name])};
      const OptimizerOptions options;
      step(Device::current().compute, options,
           {{view(values), View{}}, view(gradients.at(name)), moments, options.weight_decay},
           {&control, DType::f32, {3}}, t, kRate);
    }
  };
  Values waiting;
  for (std::int64_t t = 1; t <= steps; ++t) {
    Values gradients;
    result.losses.push_back(of_model.compute(model, result.weights, t - 1, gradients));
    if (!waiting.empty()) update(std::exchange(waiting, {}), t - 1);
    if (t > delay_after)
      waiting = gradients;
    else
      update(gradients, t);
  }
  if (!waiting.empty()) update(waiting, steps);
  return result;
}

// Weights are read at the end only: reading takes the update that waits.
template <class Model>
Outcome train_delayed(const ShardedRun& run) {
  ThreadsWorld world(run.ranks);
  Outcome result;
  zeepo::run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower}, communicator);
    Model model;
    Engine engine(model, communicator, run.options);
    engine.load(fill_weights);
    Outcome own;
    for (int step = 0; step < run.steps; ++step) {
      const Rows rows((step * run.ranks + communicator.rank()) * run.rows, run.rows);
      engine.micro_step([&] { return loss_of(model, rows, run.options.dtype, step); });
      const StepResult done = engine.step(kRate);
      own.losses.push_back(done.loss);
      own.norms.push_back(done.grad_norm);
    }
    read_all(engine, own.weights);
    if (communicator.rank() == 0) result = own;
  });
  return result;
}

class DelayedUpdate : public testing::Test {
 protected:
  ShardedRun base(int ranks, std::int64_t delay_after) const {
    ShardedRun run = run_in_tiers(ranks, {.stage = 3, .prefetch_bytes = 1 << 20, .clip = 0, .delay_after = delay_after},
                                  directory_.path());
    run.rows = kRows;
    run.steps = 6;
    return run;
  }
  TestDirectory directory_;
};

TEST_F(DelayedUpdate, IsWhatItsDefinitionSays) {
  for (const std::int64_t delay_after : {0, 2, 5, 100}) {
    const auto expected = simulate(6, delay_after);
    for (const Place place : kPlaces) {
      ShardedRun run = base(1, delay_after);
      run.options.placement.optimizer = Shares::all_in(place);
      const auto delayed = train_delayed<Plain>(run);
      EXPECT_EQ(delayed.losses, expected.losses) << delay_after << " " << name_of(place);
      EXPECT_EQ(delayed.weights, expected.weights) << delay_after << " " << name_of(place);
    }
  }
}

TEST_F(DelayedUpdate, LagsOneStepBehind) {
  const auto delayed = simulate(4, 0), at_once = simulate(4, 100);
  EXPECT_EQ(delayed.losses[0], at_once.losses[0]);
  EXPECT_NE(delayed.losses[1], at_once.losses[1]);
  EXPECT_NE(delayed.weights, at_once.weights);
}

template <class Model>
void expect_the_same_everywhere(ShardedRun run, const std::string& what) {
  const auto reference = train_delayed<Model>(run);
  const auto expect_same = [&](const std::string& where) {
    const auto other = train_delayed<Model>(run);
    EXPECT_EQ(other.losses, reference.losses) << what << where;
    EXPECT_EQ(other.norms, reference.norms) << what << where;
    EXPECT_EQ(other.weights, reference.weights) << what << where;
  };
  for (const int stage : {0, 1, 2, 3}) {
    run.options.stage = stage;
    run.options.placement = {};
    run.options.step_below_on = StepSide::host;
    expect_same(fmt::format(", stage {}", stage));
    for (const StepSide side : {StepSide::host, StepSide::device})
      for (const Shares& optimizer : {Shares{.host = 1}, Shares{.nvme = 1}, Shares{.host = 0.4, .nvme = 0.3}}) {
        run.options.step_below_on = side;
        run.options.placement.optimizer = optimizer;
        run.options.placement.params = stage == 3 ? Shares{.host = 0.5} : Shares{};
        expect_same(fmt::format(", stage {}, side {}, host {} nvme {}", stage, static_cast<int>(side), optimizer.host,
                                optimizer.nvme));
      }
  }
}

TEST_F(DelayedUpdate, IsTheSameAtEveryStageAndInEveryTier) {
  for (const int ranks : {1, 3}) {
    ShardedRun run = base(ranks, 1);
    run.options.clip = 0.5f;
    expect_the_same_everywhere<Wide>(run, "wide");
    expect_the_same_everywhere<Tied>(run, "tied");
    expect_the_same_everywhere<Branching>(run, "branching");
    expect_the_same_everywhere<Outside>(run, "outside");
    expect_the_same_everywhere<Deep>(run, "deep");
  }
}

// A pass that throws has made the update of the units it came to; the others get it later, none twice.
TEST_F(DelayedUpdate, OutlivesAPassThatThrows) {
  const auto train = [&](Place place, bool breaks) {
    const ShardedRun run = base(1, 0);
    EngineOptions options = run.options;
    options.placement.optimizer = Shares::all_in(place);
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
    Wide model;
    Engine engine(model, session.communicator(), options);
    engine.load(fill_weights);
    const auto pass = [&] { engine.micro_step([&] { return loss_of(model, Rows(0, kRows), DType::f32, 0); }); };
    pass();
    (void)engine.step(kRate);
    model.breaks = true;
    if (breaks) {
      EXPECT_TRUE(names(error_text(pass), "broken backward"));
    }
    Values weights;
    read_all(engine, weights);
    return weights;
  };
  for (const Place place : kPlaces) EXPECT_EQ(train(place, true), train(place, false)) << name_of(place);
}

TEST_F(DelayedUpdate, SkipsWhatOverflows) {
  const auto train = [&](Place place) {
    ShardedRun run = base(1, 0);
    EngineOptions options = run.options;
    options.dtype = DType::f16;
    options.loss_scale = {.initial = 128};
    options.placement.optimizer = Shares::all_in(place);
    Session session({.threads = 1, .device_bytes = run.device_bytes, .lower = run.lower});
    Plain model;
    Engine engine(model, session.communicator(), options);
    engine.load(fill_weights);
    std::vector<bool> skipped;
    for (int step = 0; step < 4; ++step) {
      Rows rows(step * kRows, kRows);
      if (step == 1) rows.x[2] = std::numeric_limits<float>::infinity();
      engine.micro_step([&] { return loss_of(model, rows, DType::f16, step); });
      skipped.push_back(engine.step(kRate).skipped);
    }
    EXPECT_EQ(skipped, (std::vector{false, true, false, false})) << name_of(place);
    Values weights;
    read_all(engine, weights);
    return weights;
  };
  const auto on_device = train(Place::device);
  for (const auto& [name, values] : on_device)
    for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  for (const Place place : {Place::host, Place::nvme}) EXPECT_EQ(train(place), on_device) << name_of(place);
}

TEST_F(DelayedUpdate, TakesOneMicroStep) {
  ShardedRun run = base(1, 0);
  run.options.accumulation = 2;
  EXPECT_TRUE(names(error_text([&] { (void)train_delayed<Plain>(run); }), "2 micro-steps"));
}

}  // namespace
}  // namespace zeepo
