// The backward pass of a batch in parts, so that what it keeps of each row fits into its workspace: samples do not
// depend on each other, nor on how the batch is cut.
#pragma once

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/attention.h"

namespace zeepo::cuda {

// Samples [first, first + count) of a batch.
template <class Void>
BasicHeads<Void> samples_of(BasicHeads<Void> x, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_const_v<Void>, const std::byte, std::byte>;
  x.data = static_cast<Byte*>(x.data) + first * x.batch_stride * static_cast<std::int64_t>(size_of(x.dtype));
  x.batch = count;
  return x;
}
inline AttentionBackward samples_of(const AttentionBackward& x, std::int64_t first, std::int64_t count) {
  const auto of = [&](const auto& heads) { return samples_of(heads, first, count); };
  const ConstView log_sums{
      x.log_sums.as<float>() + first * x.q.heads * x.q.rows, x.log_sums.dtype, {count, x.q.heads, x.q.rows}};
  return {of(x.q), of(x.k), of(x.v), of(x.out), of(x.dout), log_sums, of(x.dq), of(x.dk), of(x.dv)};
}

// f(samples, the first one's number) for each part of as many samples as have `sample_bytes` each in `room_bytes`.
// Throws Error when there is no room for one.
template <class F>
void for_parts_of_batch(const AttentionBackward& x, std::size_t sample_bytes, std::size_t room_bytes, const F& f) {
  if (sample_bytes > room_bytes)
    throw Error("attention_backward: {} heads of {} queries take {} bytes of workspace a sample; there are {}",
                x.q.heads, x.q.rows, sample_bytes, room_bytes);
  const auto most = static_cast<std::int64_t>(room_bytes / std::max<std::size_t>(1, sample_bytes));
  for (std::int64_t first = 0; first < x.q.batch; first += most)
    f(samples_of(x, first, std::min(most, x.q.batch - first)), first);
}

}  // namespace zeepo::cuda
