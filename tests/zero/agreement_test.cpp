// Ranks that differ, and ranks that fail: an error on every one of them, which names what and who.
#include "zeepo/zero/agreement.h"

#include "tests/support/errors.h"
#include "tests/zero/sharded_models.h"
#include "zeepo/autograd/tape.h"

namespace zeepo {
namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

// What each rank of a job threw; empty where nothing.
std::vector<std::string> errors_of(int ranks, const std::function<void(Communicator&)>& f) {
  std::vector<std::string> texts(static_cast<std::size_t>(ranks));
  ThreadsWorld world(ranks);
  try {
    run(world, [&](Communicator& communicator) {
      try {
        f(communicator);
      } catch (const std::exception& error) {
        texts[static_cast<std::size_t>(communicator.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  return texts;
}

TEST(Agreement, NamesWhatDiffersOnEveryRank) {
  const Values common{{"the number of tokens", "100"}, {"--seed", "7"}, {"--dtype", "bf16"}};
  for (std::size_t differs = 0; differs < common.size(); ++differs)
    for (int other = 0; other < 3; ++other) {
      const auto texts = errors_of(3, [&](Communicator& communicator) {
        Values values = common;
        if (communicator.rank() == other) values[differs].second = "something else, and of another length";
        check_agreement(communicator, values);
      });
      for (const auto& text : texts)
        EXPECT_TRUE(names(text, common[differs].first, common[differs].second, "something else, and of another length",
                          "rank 0", fmt::format("rank {}", other == 0 ? 1 : other)));
    }
}

TEST(Agreement, IsSilentWhereAllAgree) {
  for (const int ranks : {1, 2, 5})
    for (const auto& text : errors_of(ranks, [](Communicator& communicator) {
           check_agreement(communicator, {{"nothing", ""}, {"--seed", "7"}});
         }))
      EXPECT_EQ(text, "");
}

TEST(Agreement, TextsOfAnyLengthArriveInRankOrder) {
  const std::vector<std::string> expected{"", "a", std::string("\0null", 5), std::string(10001, 'x')};
  (void)errors_of(4, [&](Communicator& communicator) {
    EXPECT_EQ(gather_texts(communicator, expected[static_cast<std::size_t>(communicator.rank())]), expected);
  });
}

// Throws where it is told to: between two visits of the forward pass, or of the backward pass.
class Failing : public Module {
 public:
  enum class Where { nowhere, forward, backward } where = Where::nowhere;

  Tensor loss(const Tensor& x, const Tensor& targets) {
    Tensor h = x;
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      if (i == 2 && where == Where::forward) throw Error("the disk is full");
      if (Tape* tape = Tape::current(); tape && i == 2 && where == Where::backward)
        tape->mark([] { throw Error("the disk is full"); });
      h = (*blocks_[i])(h);
    }
    return cross_entropy(head_(h), targets);
  }

 private:
  std::vector<Module*> blocks_ = [this] {
    std::vector<Module*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(&child<Residual>("blocks." + std::to_string(i)));
    return blocks;
  }();
  Module& head_ = child<Linear>("head", kIn, kOut);
};

TEST(FailingRank, EndsAllOthersInTheMiddleOfAPass) {
  constexpr int kRanks = 3;
  for (const int stage : {0, 1, 2, 3})
    for (int failing = 0; failing < kRanks; ++failing)
      for (const auto where : {Failing::Where::forward, Failing::Where::backward}) {
        const auto texts = errors_of(kRanks, [&](Communicator& communicator) {
          Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
          Failing model;
          ModelEngine engine(model, communicator, {.stage = stage});
          engine.load(fill_weights);
          for (int step = 0; step < 4; ++step) {
            if (step == 2 && communicator.rank() == failing) model.where = where;
            const Rows rows(communicator.rank(), 2);
            engine.micro_step([&] {
              return model.loss(Tensor::from<float>(rows.x, {2, kIn}), Tensor::from<std::int32_t>(rows.targets, {2}));
            });
            (void)engine.step(0.1);
          }
        });
        for (int rank = 0; rank < kRanks; ++rank) {
          const auto& text = texts[static_cast<std::size_t>(rank)];
          if (rank == failing)
            EXPECT_EQ(text, "the disk is full");
          else
            EXPECT_TRUE(
                names(text, fmt::format("rank {} failed while rank {} waited for", failing, rank), "the disk is full"))
                << "stage " << stage;
        }
      }
}

// A branch that only one rank takes: the ranks' collectives no longer match.
TEST(FailingRank, ThatGoesAnotherWayIsAnErrorOnAll) {
  for (const int stage : {0, 1, 2, 3})
    for (const std::int64_t prefetch : {std::int64_t{0}, std::int64_t{1} << 20}) {
      const auto texts = errors_of(3, [&](Communicator& communicator) {
        Session session({.threads = 1, .device_bytes = 1 << 20}, communicator);
        Branching model;
        ModelEngine engine(model, communicator, {.stage = stage, .prefetch_bytes = prefetch});
        engine.load(fill_weights);
        for (int step = 0; step < 4; ++step) {
          const std::int64_t way = step == 2 && communicator.rank() == 1 ? 1 : 0;
          engine.micro_step([&] { return loss_of(model, Rows(communicator.rank(), 2), DType::f32, way); });
          (void)engine.step(0.1);
        }
      });
      for (const auto& text : texts)
        EXPECT_TRUE(names(text, "rank 1 called", "of right", "same calls in the same order")) << "stage " << stage;
    }
}

}  // namespace
}  // namespace zeepo
