// The example's own model, loop and files, on digits that the test draws.
#include <gtest/gtest.h>

#include "examples/mnist/cnn.h"
#include "examples/mnist/training.h"
#include "tests/examples/drawn_digits.h"
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace mnist {
namespace {

class Mnist : public testing::Test {
 private:
  const TestDirectory scratch_;

 protected:
  const std::filesystem::path& directory_ = scratch_.path();
};

TEST_F(Mnist, LearnsToReadDrawnDigits) {
  write_digits(directory_, "train", 1500, 1, Packing::gzip);
  write_digits(directory_, "t10k", 300, 2, Packing::plain);
  const Digits training(directory_, "train"), test(directory_, "t10k");

  Session session({.threads = 2});
  Cnn model;
  ModelEngine engine(model, session.communicator(), engine_options());
  std::vector<double> losses;
  train(engine, model, training, {.batch = 32, .epochs = 6}, [&](std::int64_t epoch, double loss) {
    EXPECT_EQ(epoch, static_cast<std::int64_t>(losses.size()) + 1);
    losses.push_back(loss);
  });
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_LT(losses.back(), losses.front() / 4);
  EXPECT_GT(accuracy(model, test), 0.9);
}

TEST_F(Mnist, TheSameSeedGivesTheSameWeights) {
  write_digits(directory_, "train", 100, 1, Packing::plain);
  const Digits training(directory_, "train");
  const auto hash = [&](int threads) {
    Session session({.threads = threads});
    Cnn model;
    ModelEngine engine(model, session.communicator(), engine_options());
    train(engine, model, training, {.batch = 20, .epochs = 1}, [](std::int64_t, double) {});
    return engine.weights_hash();
  };
  const auto first = hash(2);
  EXPECT_EQ(hash(2), first);
  EXPECT_EQ(hash(1), first);
}

TEST_F(Mnist, ReadsTheSamePackedAndPlain) {
  write_digits(directory_, "train", 20, 7, Packing::plain);
  write_digits(directory_, "t10k", 20, 7, Packing::gzip);
  const Digits plain(directory_, "train"), packed(directory_, "t10k");
  Session session({.threads = 1});
  EXPECT_EQ(plain.batch({0, 13}).images.to_floats(), packed.batch({0, 13}).images.to_floats());
  EXPECT_EQ(packed.label(13), 3);
}

TEST_F(Mnist, NamesTheFileThatIsMissingOrDoesNotFit) {
  EXPECT_TRUE(
      names(error_text([&] { Digits(directory_, "train"); }), directory_.string(), "train-images-idx3-ubyte.gz"));
  write_digits(directory_, "train", 20, 1, Packing::plain);
  write_file(directory_ / "train-labels-idx1-ubyte", std::string("\0\0\10\1\0\0\0\1\5", 9), Packing::plain);
  EXPECT_TRUE(names(error_text([&] { Digits(directory_, "train"); }), "20 images", "1 labels"));
}

}  // namespace
}  // namespace mnist
