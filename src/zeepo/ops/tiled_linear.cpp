#include "zeepo/ops/tiled_linear.h"

#include "zeepo/base/error.h"
#include "zeepo/kernels/elementwise.h"
#include "zeepo/kernels/matmul.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Columns [first, first + count) of x as a matrix; its rows stay as far apart as they are.
View columns_of(const Tensor& x, std::int64_t first, std::int64_t count) {
  View view = x.view();
  const std::int64_t rows = view.shape.rows();
  if (view.data) view.data = static_cast<std::byte*>(view.data) + static_cast<std::size_t>(first) * size_of(view.dtype);
  view.shape = {rows, count};
  return view;
}

// Where a product whose k is in tiles is summed: the result itself in fp32, else beside it.
Tensor sums_for(const Tensor& result) {
  return result.dtype() == DType::f32 ? result : Tensor(result.shape(), DType::f32, Kind::working);
}

void narrow(const Tensor& sums, const Tensor& result) {
  if (result.dtype() != DType::f32) launch([&](auto& s) { copy(s, sums.view(), result.view()); });
}

}  // namespace

// What the tiles' steps of the backward pass share, from the one that has the gradient of y to the last.
struct TiledLinear::BackwardPass {
  std::shared_ptr<Gradient> dx, dbias;
  Saved saved_x;
  bool any_weight = false;
  WeightLayout layout;
  std::int64_t rows;

  Tensor dy, x, sum, open;
  Gradient::Target to;

  bool flows() const { return dy.defined(); }
  void begin(const Tensor& gradient);
  void through(const Tensor& weight, std::int64_t first_row);
  void into(Gradient& weight, std::int64_t first_row, std::int64_t count);
  void end();
};

void TiledLinear::BackwardPass::begin(const Tensor& gradient) {
  dy = gradient;
  if (any_weight) x = saved_x();
  if (dbias) {
    const auto target = dbias->target();
    launch([&](auto& s) { sum_rows(s, dy.view(), target.tensor.view(), target.write); });
  }
  if (!dx) return;
  to = dx->target();
  if (layout == WeightLayout::in_out) return;
  sum = sums_for(to.tensor);
  open = Tensor(to.tensor.shape(), DType::f32, Kind::working);
  if (to.write == Write::add && to.tensor.dtype() != DType::f32)
    launch([&](auto& s) { copy(s, to.tensor.view(), sum.view()); });
}

// The part of dx that comes through one tile.
void TiledLinear::BackwardPass::through(const Tensor& weight, std::int64_t first_row) {
  const std::int64_t count = weight.shape()[0];
  launch([&](auto& s) {
    if (layout == WeightLayout::in_out)
      matmul(s, dy.view(), weight.view(), columns_of(to.tensor, first_row, count),
             {.b = Transpose::yes, .write = to.write, .c_stride = rows});
    else
      matmul(s, columns_of(dy, first_row, count), weight.view(), sum.view(),
             {.write = to.write, .a_stride = rows, .part = {.begin = first_row, .whole = rows, .open = open.view()}});
  });
}

void TiledLinear::BackwardPass::into(Gradient& weight, std::int64_t first_row, std::int64_t count) {
  const auto target = weight.target();
  const bool out_in = layout == WeightLayout::out_in;
  const Tensor &a = out_in ? dy : x, &b = out_in ? x : dy;
  launch([&](auto& s) {
    matmul(s, columns_of(a, first_row, count), b.view(), target.tensor.view(),
           {.a = Transpose::yes, .write = target.write, .a_stride = rows});
  });
}

void TiledLinear::BackwardPass::end() {
  if (flows() && dx && layout == WeightLayout::out_in) narrow(sum, to.tensor);
  dy = x = sum = open = {};
  to = {{}, Write::overwrite};
  saved_x = {};
}

TiledLinear::TiledLinear(const Tensor& x, const Tensor& bias, std::int64_t rows, WeightLayout layout)
    : x_(x), bias_(bias), rows_(rows), layout_(layout), tape_(Tape::current()) {
  if (layout == WeightLayout::in_out && x.shape()[-1] != rows)
    throw Error("linear: x {} does not fit a weight of {} rows (in, out)", x.shape().str(), rows);
  if (layout == WeightLayout::out_in && bias.defined() && bias.elements() != rows)
    throw Error("linear: bias {} does not fit a weight of {} rows (out, in)", bias.shape().str(), rows);
  if (!tape_) return;
  back_ = std::make_shared<BackwardPass>();
  back_->dx = wanted_gradient(x);
  back_->dbias = wanted_gradient(bias);
  back_->layout = layout;
  back_->rows = rows;
  tape_->mark([back = back_] { back->end(); });
}

void TiledLinear::multiply(const Tensor& weight, std::int64_t first_row) {
  const bool out_in = layout_ == WeightLayout::out_in;
  const std::int64_t count = weight.shape()[0], width = weight.shape()[1];
  if (weight.shape().rank() != 2 || first_row < 0 || first_row + count > rows_ || (out_in && x_.shape()[-1] != width) ||
      (!out_in && bias_.defined() && bias_.elements() != width))
    throw Error("linear: x {} and rows {} to {} of {} do not fit the tile {}", x_.shape().str(), first_row,
                first_row + count, rows_, weight.shape().str());
  if (!y_.defined()) {
    y_ = Tensor(x_.shape().with_last(out_in ? rows_ : width), x_.dtype());
    if (!out_in) {
      sum_ = sums_for(y_);
      open_ = Tensor(y_.shape(), DType::f32, Kind::working);
    }
  }
  launch([&](auto& s) {
    if (out_in)
      matmul(s, x_.view(), weight.view(), columns_of(y_, first_row, count),
             {.b = Transpose::yes,
              .bias = bias_.defined() ? bias_.part(first_row, {count}).view() : View{},
              .c_stride = rows_});
    else
      matmul(s, columns_of(x_, first_row, count), weight.view(), sum_.view(),
             {.bias = bias_.view(),
              .a_stride = rows_,
              .part = {.begin = first_row, .whole = rows_, .open = open_.view()}});
  });

  if (!tape_) return;
  const auto dweight = wanted_gradient(weight);
  if (dweight && !back_->any_weight) {
    back_->any_weight = true;
    back_->saved_x = tape_->save(x_);
  }
  if (!dweight && !back_->dx) return;
  tape_->mark([back = back_, dweight, saved = back_->dx ? tape_->save(weight) : Saved(), first_row, count] {
    if (!back->flows()) return;
    if (back->dx) back->through(saved(), first_row);
    if (dweight) back->into(*dweight, first_row, count);
  });
}

Tensor TiledLinear::finish() {
  if (layout_ == WeightLayout::in_out) narrow(sum_, y_);
  if (tape_ && (back_->dx || back_->dbias || back_->any_weight))
    tape_->record({&y_}, [back = back_](std::span<Tensor> dy) { back->begin(dy[0]); });
  return y_;
}

}  // namespace zeepo
