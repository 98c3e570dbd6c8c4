// The arithmetic between the matrix products of attention, row by row in fp32.
#pragma once

#include <cstdint>

#include "zeepo/base/rng.h"

namespace zeepo::cpu {

// The columns of one row of a block that its query sees.
struct Visible {
  std::int64_t begin, end;
};

// A softmax that has seen some blocks of its row: weights are exp(x − max), `sum` is their sum.
struct RunningSoftmax {
  float max, sum;
};

// Turns products into weights exp(scale·x − max), 0 where not visible, and counts them in `state`. Returns the factor
// that what was summed with the old maximum must be multiplied by. scale > 0.
float softmax_block(float* row, std::int64_t columns, Visible visible, float scale, RunningSoftmax& state);

// The largest of n products; −∞ of none.
float largest_of(const float* products, std::int64_t n);

// x / sum as what attention gives. Keys that a query does not see have added zeros of either sign to x: a zero is +0.
void finish_row(float* x, float sum, std::int64_t n);

// weights = exp(scale·products − log_sum), 0 where not visible, times `keep` (dropout's factors; null: none), and
// dweights becomes the gradient of the products: scale · weight · (keep·dweight − delta).
void softmax_backward_block(float* products, float* dweights, const float* keep, std::int64_t columns, Visible visible,
                            float scale, float log_sum, float delta);

// keep[j] = 1/(1 − p) where uniform(key, first + j) >= p, else 0.
void dropout_factors(RngKey key, std::uint64_t first, std::int64_t columns, float p, float* keep);

// sum of x[i]·y[i]
float dot(const float* x, const float* y, std::int64_t n);
void multiply(float* x, const float* factors, std::int64_t n);
void multiply(float* x, float factor, std::int64_t n);

}  // namespace zeepo::cpu
