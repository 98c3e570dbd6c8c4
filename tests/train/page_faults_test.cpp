// A bit that flips on the way from the disk is read again: the run ends with its bits, and its log names the rank.
#include "tests/support/errors.h"
#include "tests/support/io_faults.h"
#include "tests/support/places.h"
#include "tests/train/drawn_runs.h"

namespace zeepo {
namespace {

class PageFaultRuns : public DrawnRuns {};

TEST_F(PageFaultRuns, AreToldAndChangeNoBit) {
  TrainOptions options;
  options.model = std::filesystem::path(kTestData) / "golden" / "llama-tiny";
  options.data = options.model / "tokens.bin";
  options.seq_len = 8;
  options.threads = 1;
  options.steps = 4;
  options.stage = 2;
  options.placement.optimizer.nvme = 1;
  options.nvme_paths = {files_.path()};
  for (const int ranks : {1, 3}) {
    options.grad_accum = 3 / ranks;
    FaultAt counter(IoFault::none, 0);
    options.io.faults = &counter;
    const std::string hash = train(options, ranks).hash;
    EXPECT_TRUE(events("fault").empty());
    int reads = 0;
    for (int tries = 0; tries < 20 && reads < 3; ++tries) {
      FaultAt fault(IoFault::flipped_bit, static_cast<int>(random_() % static_cast<std::uint32_t>(counter.calls())));
      options.io.faults = &fault;
      try {
        const std::string found = train(options, ranks).hash;
        EXPECT_EQ(found, hash);
      } catch (const Error& error) {  // what was written wrong stays so
        EXPECT_TRUE(names(error.what(), "the disk returned other bytes than were written, 3 times"));
        continue;
      }
      if (!fault.struck_a_read()) continue;  // written wrong, and never read
      ++reads;
      const auto faults = events("fault");
      ASSERT_EQ(faults.size(), 1u);
      EXPECT_EQ(faults[0].at("what"), "swap file");
      EXPECT_TRUE(
          names(faults[0].at("message"), "rank ", "1 pages had a wrong checksum, and were right when read again"));
    }
    EXPECT_GT(reads, 0);
  }
}

TEST_F(PageFaultRuns, WhatEndsTheRunIsInItsLog) {
  TrainOptions options;
  options.model = std::filesystem::path(kTestData) / "golden" / "llama-tiny";
  options.data = options.model / "tokens.bin";
  options.seq_len = 8;
  options.threads = 1;
  options.steps = 4;
  options.placement.optimizer.nvme = 1;
  options.nvme_paths = {files_.path()};
  FaultAt counter(IoFault::none, 0);
  options.io.faults = &counter;
  train(options);
  for (const int ranks : {1, 2}) {
    options.stage = ranks == 1 ? 0 : 1;
    FaultAt fault(IoFault::error, counter.calls() / 2);
    options.io.faults = &fault;
    const std::string message = error_text([&] { train(options, ranks); });
    EXPECT_TRUE(names(message, "Input/output error"));
    const auto faults = events("fault");
    ASSERT_EQ(faults.size(), 1u) << ranks;
    EXPECT_EQ(faults[0].at("what"), "end");
    EXPECT_EQ(faults[0].at("step"), events("step").size());
    EXPECT_TRUE(names(faults[0].at("message").get<std::string>(), "Input/output error"));
    EXPECT_TRUE(events("summary").empty());
  }
}

}  // namespace
}  // namespace zeepo
