// Every single I/O call of a training run goes wrong in every way: the run ends with an Error that says what happened,
// or with the bits of the run in which nothing went wrong.
#include "tests/support/io_faults.h"
#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "tests/zero/sharded_run.h"
#include "zeepo/ops/activation.h"
#include "zeepo/ops/loss.h"

namespace zeepo {
namespace {

class Narrow : public Module {
 public:
  Narrow() : first_(child<GeluBlock>("first", kIn, kWide)), second_(child<GeluBlock>("second", kWide, kOut)) {}
  Tensor loss(const Tensor& x, const Tensor& targets, std::int64_t) {
    return cross_entropy(second_(first_(x)), targets);
  }

 private:
  static constexpr std::int64_t kWide = 300;  // activations that are worth a transfer
  GeluBlock &first_, &second_;
};

class TrainingFaults : public testing::Test {
 protected:
  ShardedRun all_on_nvme(int ranks, IoFaults* faults) const {
    ShardedRun run{.ranks = ranks};
    run.options = {.dtype = DType::bf16,
                   .stage = 3,
                   .prefetch_bytes = 1 << 20,
                   .accumulation = 2,
                   .placement = {Shares::all_in(Place::nvme), Shares::all_in(Place::nvme), Place::nvme},
                   .piece_elements = EngineOptions::kPieceAlignment,
                   .pieces_under_way = 2,
                   .activation_checkpointing = true};
    run.rows = 8;
    run.steps = 2;
    run.device_bytes = 16 << 20;
    run.lower = {.host_bytes = 16 << 20, .nvme_paths = {directory_.path()}, .nvme_bytes = 16 << 20};
    run.lower.staging_bytes = SwapFile::kPageBytes;
    run.lower.io = {.backend = IoBackend::threads, .threads = 2, .faults = faults};
    return run;
  }

  // What the run's Error says; empty when it has ended, with `result`.
  static std::string outcome(const ShardedRun& run, std::vector<ShardedResult>& result) {
    try {
      result = train_ranks<Narrow>(run);
    } catch (const Error& error) {
      return error.what();
    }
    return {};
  }

  // Each `stride`-th call.
  void check(int ranks, int stride, const std::vector<std::pair<IoFault, std::vector<std::string>>>& cases) const {
    FaultAt counter(IoFault::none, 0);
    std::vector<ShardedResult> reference;
    ASSERT_EQ(outcome(all_on_nvme(ranks, &counter), reference), "");
    ASSERT_GT(counter.calls(), 20 * ranks);
    for (const auto& [fault, texts] : cases) {
      int errors = 0;
      for (int k = 0; k < counter.calls(); k += stride) {
        FaultAt faults(fault, k);
        std::vector<ShardedResult> result;
        const std::string text = outcome(all_on_nvme(ranks, &faults), result);
        const std::string what = fmt::format("{} ranks, fault {} at call {}", ranks, static_cast<int>(fault), k);
        if (text.empty()) {
          expect_same_bits(result, reference, what);
          continue;
        }
        ++errors;
        bool expected = false;
        for (const std::string& part : texts) expected |= text.find(part) != std::string::npos;
        EXPECT_TRUE(expected) << what << ": " << text;
        EXPECT_TRUE(names(text, "the swap file in ", " bytes at offset ")) << what;
      }
      EXPECT_EQ(errors > 0, !texts.empty()) << static_cast<int>(fault);
    }
  }

  TestDirectory directory_;
};

TEST_F(TrainingFaults, EndInAClearErrorOrTheSameBits) {
  check(1, 1,
        {{IoFault::error, {"Input/output error"}},
         {IoFault::full, {"No space left on device"}},
         {IoFault::shortened, {}},
         {IoFault::nothing, {"the file ends there", "the file took no byte"}},
         {IoFault::flipped_bit, {"the disk returned other bytes than were written"}}});
}

// Not even a write of what is not read again. (Of activations one may: a value that is still on the device when it is
// wanted is not read.)
TEST_F(TrainingFaults, OfStatesAreAlwaysHeardOf) {
  const auto states_on_nvme = [&](IoFaults* faults) {
    ShardedRun run = all_on_nvme(1, faults);
    run.options.placement.activations = Place::device;
    return run;
  };
  FaultAt counter(IoFault::none, 0);
  std::vector<ShardedResult> ignored;
  ASSERT_EQ(outcome(states_on_nvme(&counter), ignored), "");
  for (int k = 0; k < counter.calls(); ++k) {
    FaultAt faults(IoFault::error, k);
    EXPECT_TRUE(names(outcome(states_on_nvme(&faults), ignored), "Input/output error"))
        << "at call " << k << " of " << counter.calls() << (faults.struck() ? "" : ", which did not come");
  }
}

// The other rank hears of it: no one waits for ever.
TEST_F(TrainingFaults, OfOneRankEndAll) {
  check(2, 7,
        {{IoFault::error, {"Input/output error"}},
         {IoFault::full, {"No space left on device"}},
         {IoFault::flipped_bit, {"the disk returned other bytes than were written"}}});
}

}  // namespace
}  // namespace zeepo
