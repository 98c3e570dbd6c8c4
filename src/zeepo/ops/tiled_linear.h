// linear() with its weight in tiles: ranges of its stored rows, of which one at a time need be there.
//
// Of a weight (out, in) a tile gives some columns of y, of a weight (in, out) it adds to all of y. The same bits as
// linear() gives on a CPU, whatever the tiles; on a GPU sums over tiles are added in their order, in fp32.
// Made for one forward pass: multiply() once for each tile in the order of order(), then finish(). What a
// tile needs in the backward pass runs in the reverse order, each in the place that its multiply() had.
#pragma once

#include <cstdint>
#include <memory>

#include "zeepo/autograd/tape.h"
#include "zeepo/ops/linear.h"
#include "zeepo/tensor/tensor.h"

namespace zeepo {

class TiledLinear {
 public:
  // x: (..., in)   bias: (out) or undefined; `rows` is how many the whole weight has in storage.
  TiledLinear(const Tensor& x, const Tensor& bias, std::int64_t rows, WeightLayout layout);

  // Sums over tiles go up from the first row: in the forward pass of one layout, in the backward pass of the other.
  enum class Order { first_row_first, last_row_first };
  static Order order(WeightLayout layout) {
    return layout == WeightLayout::in_out ? Order::first_row_first : Order::last_row_first;
  }
  // Rows [first_row, first_row + n) of the weight.   weight: (n, in) or (n, out)
  void multiply(const Tensor& weight, std::int64_t first_row);
  Tensor finish();

 private:
  struct BackwardPass;

  Tensor x_, bias_;
  std::int64_t rows_;
  WeightLayout layout_;
  Tape* tape_;
  std::shared_ptr<BackwardPass> back_;
  Tensor y_, sum_, open_;
};

}  // namespace zeepo
