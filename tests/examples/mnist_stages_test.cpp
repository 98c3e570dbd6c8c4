// The example's model, its source unchanged, under every stage and on several ranks.
#include <gtest/gtest.h>

#include "examples/mnist/cnn.h"
#include "examples/mnist/training.h"
#include "tests/examples/drawn_digits.h"
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/comm/threads/threads_world.h"

namespace mnist {
namespace {

struct Record {
  std::vector<float> losses, norms;
  std::string hash;
  friend bool operator==(const Record&, const Record&) = default;
};

// Each rank takes its part of a batch of twelve.
Record train_on(const Digits& digits, int ranks, int stage, DType dtype) {
  std::vector<Record> records(static_cast<std::size_t>(ranks));
  ThreadsWorld world(ranks);
  run(world, [&](Communicator& communicator) {
    Session session({.threads = 1, .device_bytes = 32 << 20}, communicator);
    Cnn model;
    EngineOptions options = engine_options();
    options.stage = stage;
    options.dtype = dtype;
    ModelEngine engine(model, communicator, options);
    engine.load(random_weights(1));
    Record& record = records[static_cast<std::size_t>(communicator.rank())];
    const std::int64_t rows = 12 / ranks;
    for (std::int64_t step = 0; step < 4; ++step) {
      std::vector<std::int64_t> indices;
      for (std::int64_t i = 0; i < rows; ++i) indices.push_back(step * 12 + communicator.rank() * rows + i);
      const auto batch = digits.batch(indices);
      engine.micro_step([&] { return cross_entropy(model(batch.images), batch.labels); });
      const StepResult result = engine.step(0.02);
      record.losses.push_back(result.loss);
      record.norms.push_back(result.grad_norm);
    }
    record.hash = engine.weights_hash();
  });
  for (const auto& record : records) EXPECT_EQ(record, records[0]);
  return records[0];
}

TEST(MnistStages, GiveTheSameBitsAndOneRanksLosses) {
  const TestDirectory directory;
  write_digits(directory.path(), "train", 60, 1, Packing::plain);
  const Digits digits(directory.path(), "train");

  const Record alone = train_on(digits, 1, 0, DType::f32);
  EXPECT_NE(alone.losses[1], alone.losses[0]);
  for (const int ranks : {1, 3}) {
    const Record reference = train_on(digits, ranks, 0, DType::f32);
    for (std::size_t i = 0; i < alone.losses.size(); ++i) EXPECT_NEAR(reference.losses[i], alone.losses[i], 1e-5);
    for (const int stage : {1, 2, 3})
      EXPECT_EQ(train_on(digits, ranks, stage, DType::f32), reference) << "stage " << stage << " on " << ranks;
  }
}

TEST(MnistRanks, ShareEachBatchAndLearnWhatOneRankDoes) {
  const TestDirectory directory;
  write_digits(directory.path(), "train", 64, 1, Packing::plain);
  const Digits digits(directory.path(), "train");
  const auto losses_on = [&](int ranks) {
    std::vector<double> losses;
    ThreadsWorld world(ranks);
    run(world, [&](Communicator& communicator) {
      Session session({.threads = 1, .device_bytes = 32 << 20}, communicator);
      Cnn model;
      ModelEngine engine(model, communicator, engine_options());
      const int rank = communicator.rank();
      train(engine, model, digits, {.batch = 16, .epochs = 2, .rank = rank, .ranks = ranks},
            [&](std::int64_t, double loss) {
              if (rank == 0) losses.push_back(loss);
            });
    });
    return losses;
  };
  const auto alone = losses_on(1), shared = losses_on(2);
  ASSERT_EQ(shared.size(), 2u);
  EXPECT_NE(alone[1], alone[0]);
  for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-4);
  EXPECT_TRUE(names(error_text([&] { losses_on(3); }), "3 ranks", "batch of 16"));
}

}  // namespace
}  // namespace mnist
