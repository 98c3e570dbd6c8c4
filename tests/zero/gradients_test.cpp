// Stage 0 on several ranks: when its gradients travel, and how many at a time.
#include <future>
#include <mutex>

#include "tests/zero/sharded_models.h"
#include "tests/zero/watched_communicator.h"

namespace zeepo {
namespace {

constexpr std::int64_t kBlocks = 7;

// Units 0 to 6, one after another.
class Row : public Module {
 public:
  Row() {
    for (std::int64_t i = 0; i < kBlocks; ++i)
      blocks_.push_back(&child<GeluBlock>(fmt::format("{}", i), kIn, i + 1 < kBlocks ? kIn : kOut));
  }
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    Tensor h = x;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      h = (*blocks_[i])(h);
      if (after_forward) after_forward(i);
    }
    return cross_entropy(h, targets);
  }
  std::function<void(std::size_t)> after_forward;

 private:
  std::vector<GeluBlock*> blocks_;
};

// Three steps on each of `ranks`; `before_step` is called with the number of each before it begins.
void train(Communicator& communicator, Row& model, const EngineOptions& options,
           const std::function<void(ModelEngine&, int)>& before_step) {
  Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
  ModelEngine engine(model, communicator, options);
  engine.load(fill_weights);
  for (int step = 0; step < 3; ++step) {
    before_step(engine, step);
    engine.micro_step([&] { return loss_of(model, Rows(communicator.rank(), 2), DType::f32, step); });
    (void)engine.step(0.1);
  }
  before_step(engine, 3);
  engine.settle();
}

// Of three units one under the backward pass, behind the reduction that the compute waits for; the others in the order
// of the next forward pass.
TEST(StageZero, GathersGradientsInOneOrder) {
  const std::vector<std::string> expected{"reduce 6", "reduce 5", "reduce 4", "gather 6", "reduce 3",
                                          "reduce 2", "reduce 1", "gather 3", "reduce 0", "norms",
                                          "gather 0", "gather 1", "gather 2", "gather 4", "gather 5"};
  std::vector<std::vector<std::string>> calls(3);
  ThreadsWorld world(3);
  run(world, [&](Communicator& communicator) {
    std::mutex mutex;
    auto& own = calls[static_cast<std::size_t>(communicator.rank())];
    WatchedCommunicator watched(communicator, [&](const std::string& kind, const Label& label) {
      const std::lock_guard lock(mutex);
      if (label.what == "gradient norms") own.push_back("norms");
      if (label.what.starts_with("gradients of")) own.push_back(fmt::format("{} {}", kind, label.id));
    });
    Row model;
    train(watched, model, {.stage = 0}, [](Engine&, int) {});
  });
  for (const auto& own : calls) {
    ASSERT_EQ(own.size(), 3 * expected.size());
    for (std::size_t i = 0; i < own.size(); ++i) EXPECT_EQ(own[i], expected[i % expected.size()]) << i;
  }
}

// The gather of unit 5 does not begin before unit 4 has been used in the next pass, which would wait for ever for it if
// it were needed earlier.
TEST(StageZero, GathersUnderTheNextForwardPass) {
  std::vector<int> in_time(2);
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    std::vector<std::promise<void>> used(4);  // of each pass
    int gathers = 0, pass = -1;
    WatchedCommunicator watched(communicator, [&](const std::string& kind, const Label& label) {
      if (kind != "gather" || label.id != 5 || !label.what.starts_with("gradients of")) return;
      const auto wait = used[static_cast<std::size_t>(++gathers)].get_future().wait_for(std::chrono::seconds(20));
      in_time[static_cast<std::size_t>(communicator.rank())] += wait == std::future_status::ready;
    });
    Row model;
    model.after_forward = [&](std::size_t block) {
      if (block == 4) used[static_cast<std::size_t>(pass)].set_value();
    };
    train(watched, model, {.stage = 0}, [&](Engine&, int step) {
      pass = step;
      if (step == 3) used[3].set_value();  // there is no next one
    });
  });
  EXPECT_EQ(in_time, (std::vector{3, 3}));
}

TEST(StageZero, CountsWhatItGathersWithItsOwnStep) {
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    Row model;
    CommBytes before;
    train(communicator, model, {.stage = 0}, [&](ModelEngine& engine, int step) {
      std::int64_t half = 0;  // of all gradients: what one of two ranks sends
      for (const auto& unit : engine.units().units) half += 4 * shard_elements(unit.elements, 2, Unit::kAlignment);
      const CommBytes sent = engine.moved().all().sent;
      const std::int64_t norms = 4 * kBlocks + 8;  // one part of the norm a shard, the loss, and the note with it
      if (step > 0) {
        EXPECT_EQ(sent.reduce_scatter - before.reduce_scatter, half) << step;
        EXPECT_EQ(sent.all_gather - before.all_gather, half + norms) << step;
      }
      before = sent;
    });
  });
}

// Two reductions may be on their way, but with one unit's scratch.
TEST(StageZero, ReducesWithOneScratch) {
  ThreadsWorld world(2);
  run(world, [&](Communicator& communicator) {
    std::int64_t peaks[2];
    for (const std::int64_t prefetch_bytes : {0, 1 << 20}) {
      Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
      Row model;
      ModelEngine engine(model, communicator, {.stage = 0, .prefetch_bytes = prefetch_bytes});
      engine.load(fill_weights);
      session.restart_peaks();
      for (int step = 0; step < 2; ++step) {
        engine.micro_step([&] { return loss_of(model, Rows(communicator.rank(), 2), DType::f32, step); });
        (void)engine.step(0.1);
      }
      peaks[prefetch_bytes > 0] = session.memory().peak()[Kind::working];
      engine.settle();
    }
    EXPECT_EQ(peaks[1], peaks[0]);
  });
}

}  // namespace
}  // namespace zeepo
