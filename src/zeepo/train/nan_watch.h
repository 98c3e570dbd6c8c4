// Steps whose loss or gradients are not numbers: told with the samples where that arose, and counted.
#pragma once

#include <cstdint>
#include <string>

#include "zeepo/train/run_report.h"
#include "zeepo/train/token_batches.h"

namespace zeepo {

class NanWatch {
 public:
  // So many skipped steps in a row end the run: it does not get better by itself.
  static constexpr int kMostInARow = 20;

  // Borrows everything.
  NanWatch(const TrainOptions& options, const TokenBatches& batches, RunReport& report)
      : options_(options), batches_(batches), report_(report) {}

  // After each step that was taken or skipped. Throws Error after too many in a row.
  void after(std::int64_t step, const StepResult& result);
  void tell(std::int64_t step, const StepResult& result, const std::string& then);

 private:
  const TrainOptions& options_;
  const TokenBatches& batches_;
  RunReport& report_;
  int in_a_row_ = 0;
};

}  // namespace zeepo
