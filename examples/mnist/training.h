// Stochastic gradient descent over digits, and how well it went.
#pragma once

#include "examples/mnist/digits.h"

namespace mnist {

struct TrainingOptions {
  std::int64_t batch = 64, epochs = 3;
  double lr = 0.02;
  std::uint64_t seed = 0;
  int rank = 0, ranks = 1;  // that share each batch evenly
};

// Trains the model's fresh weights in `engine`, which must have been made for it. `after_epoch` gets the epoch, from 1,
// and its mean loss. Throws Error when the ranks cannot share a batch evenly.
void train(ModelEngine& engine, Module& model, const Digits& digits, const TrainingOptions& options,
           const std::function<void(std::int64_t epoch, double loss)>& after_epoch);

// The share of digits that the model recognises, 0 to 1.
double accuracy(Module& model, const Digits& digits);

EngineOptions engine_options();

}  // namespace mnist
