// A pass that throws, and a caller that goes on: nothing of it is left.
#include "tests/support/errors.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {
namespace {

enum class Throw { no, forward, backward };

class Fragile : public Module {
 public:
  Tensor loss(const Rows& rows, DType dtype, Throw where) {
    const auto count = static_cast<std::int64_t>(rows.targets.size());
    Tensor h = gelu(middle_(gelu(first_(of_dtype(dtype, rows.x, {count, kIn})))));
    if (where == Throw::forward) throw Error("broken forward");
    if (where == Throw::backward && Tape::current()) {
      Tensor broken = h;
      Tape::current()->record({&broken}, [](std::span<Tensor>) { throw Error("broken backward"); });
      h = broken;
    }
    return cross_entropy(last_(gelu(second_(h))), Tensor::from<std::int32_t>(rows.targets, {count}));
  }

 private:
  Module &first_ = child<Linear>("first", kIn, kHidden), &middle_ = child<Linear>("middle", kHidden, kHidden),
         &second_ = child<Linear>("second", kHidden, kHidden), &last_ = child<Linear>("last", kHidden, kOut);
};

struct Outcome {
  std::vector<float> losses, norms;
  std::string hash;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Three steps; after the first, a pass throws: in micro-step `broken` of a step that is then taken from its start.
Outcome train(Communicator& communicator, const EngineOptions& options, Throw where, std::int64_t broken) {
  Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
  Fragile model;
  ModelEngine engine(model, communicator, options);
  engine.load(fill_weights);
  Outcome outcome;
  const auto micro_step = [&](std::int64_t number, Throw at) {
    const Rows rows((number * communicator.size() + communicator.rank()) * 2, 2);
    engine.micro_step([&] { return model.loss(rows, options.dtype, at); });
  };
  for (std::int64_t step = 0; step < 3; ++step) {
    if (step > 0 && where != Throw::no) {
      engine.settle();
      const auto before = session.memory().current();
      for (std::int64_t m = 0; m < broken; ++m) micro_step(100 + m, Throw::no);
      EXPECT_TRUE(names(error_text([&] { micro_step(200, where); }), "broken"));
      EXPECT_TRUE(names(error_text([&] { (void)engine.step(0.1); }), "0 of"));
      // What a stage 3 step has gathered ahead is given back, nothing is kept.
      EXPECT_LE(session.memory().current().total, before.total);
    }
    for (std::int64_t m = 0; m < options.accumulation; ++m) micro_step(step * options.accumulation + m, Throw::no);
    const StepResult result = engine.step(0.1);
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
  }
  outcome.hash = engine.weights_hash();
  return outcome;
}

Outcome train(int ranks, const EngineOptions& options, Throw where, std::int64_t broken = 0) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) {
    outcomes[static_cast<std::size_t>(communicator.rank())] = train(communicator, options, where, broken);
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome, outcomes[0]);
  return outcomes[0];
}

TEST(AbandonedStep, LeavesNothingToTheNext) {
  for (const int ranks : {1, 3})
    for (const std::int64_t accumulation : {1, 2})
      for (const int stage : {0, 1, 2, 3})
        for (const Reduce reduce : {Reduce::each, Reduce::last}) {
          if (reduce == Reduce::last && (stage > 1 || accumulation == 1)) continue;
          for (const std::int64_t prefetch_bytes : {std::int64_t{0}, std::int64_t{1} << 30}) {
            const EngineOptions options{.dtype = DType::bf16,
                                        .stage = stage,
                                        .prefetch_bytes = prefetch_bytes,
                                        .accumulation = accumulation,
                                        .reduce = reduce,
                                        .sum_order = stage % 2 == 1 ? SumOrder::local : SumOrder::global};
            const Outcome smooth = train(ranks, options, Throw::no);
            for (const Throw where : {Throw::forward, Throw::backward})
              for (std::int64_t broken = 0; broken < accumulation; ++broken)
                EXPECT_EQ(train(ranks, options, where, broken), smooth)
                    << "stage " << stage << ", " << ranks << " ranks, micro-step " << broken << " of " << accumulation
                    << (where == Throw::forward ? ", forward" : ", backward") << ", prefetch " << prefetch_bytes;
          }
        }
}

// Parameters that an inference left gathered would be those from before the step.
TEST(AbandonedInference, LeavesNoStaleParameters) {
  const auto hash = [](bool throws) {
    std::string result;
    ThreadsWorld world(3);
    run(world, [&](Communicator& communicator) {
      Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
      Fragile model;
      ModelEngine engine(model, communicator, {.stage = 3});
      engine.load(fill_weights);
      for (int step = 0; step < 3; ++step) {
        const Rows rows(step * 3 + communicator.rank(), 1);
        engine.micro_step([&] { return model.loss(rows, DType::f32, Throw::no); });
        if (throws) {
          const auto broken = [&] { (void)model.loss(rows, DType::f32, Throw::forward); };
          EXPECT_TRUE(names(error_text([&] { engine.infer(broken); }), "broken"));
        }
        (void)engine.step(0.1);
      }
      const std::string own = engine.weights_hash();
      if (communicator.rank() == 0) result = own;
    });
    return result;
  };
  EXPECT_EQ(hash(true), hash(false));
}

}  // namespace
}  // namespace zeepo
