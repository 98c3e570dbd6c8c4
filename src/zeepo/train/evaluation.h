// The mean loss over --eval-data: forward passes alone, without dropout, sharded over the ranks.
//
// The samples are taken in the order of the file, --micro-batch at a time. A micro-batch gives the same bits on any
// rank, and their losses are added in their order: the same result on any number of ranks, at any stage and with any
// placement. Nothing of the training changes.
#pragma once

#include <cstdint>

#include "zeepo/train/token_batches.h"

namespace zeepo {

class Evaluation {
 public:
  // Borrows both. Throws Error when no target counts.
  Evaluation(const TrainingData& data, const RunSetup& setup);

  struct Result {
    double loss = 0;
    std::int64_t tokens = 0;  // that count in it
    double seconds = 0;
    int signal = 0;  // to any rank, which has ended the evaluation early; 0: none
  };
  // A collective, between two steps.
  Result run(ModelEngine& engine) const;

 private:
  float pass(ModelEngine& engine, std::int64_t batch) const;

  const TrainingData& data_;
  const RunSetup& setup_;
  std::int64_t samples_, batches_, counted_;
};

}  // namespace zeepo
