// Heads as kernels see them: the address of each head of each row.
#pragma once

#include "zeepo/kernels/cuda/floats.h"
#include "zeepo/kernels/heads.h"

namespace zeepo::cuda {

// Rows are counted through the batch: row r is row r % rows of batch r / rows. In 32 bits: dividing 64 would take
// longer than the rest of a kernel.
template <class T>
struct HeadRows {
  T* data;
  std::uint32_t rows;
  std::int64_t batch_stride, row_stride;
  int head_dim;

  template <class Void>
  explicit HeadRows(const BasicHeads<Void>& x)
      : data(static_cast<T*>(x.data)),
        rows(static_cast<std::uint32_t>(x.rows)),
        batch_stride(x.batch_stride),
        row_stride(x.row_stride),
        head_dim(static_cast<int>(x.head_dim)) {}

  __device__ T* row(std::uint32_t r) const { return data + r / rows * batch_stride + r % rows * row_stride; }
  __device__ T* head(std::uint32_t r, std::uint32_t h) const {
    return row(r) + static_cast<std::int64_t>(h) * head_dim;
  }
};

template <class Void>
bool packable(const BasicHeads<Void>& x) {
  return all_packable(static_cast<const void*>(x.data), x.batch_stride, x.row_stride, x.head_dim);
}

}  // namespace zeepo::cuda
