#include "zeepo/kernels/embedding.h"

#include <cstring>

#include "zeepo/kernels/cpu/dtype_switch.h"
#include "zeepo/kernels/cpu/elementwise_grain.h"
#include "zeepo/kernels/cpu/embedding_occurrences.h"
#include "zeepo/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "zeepo/kernels/cpu/embedding.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "zeepo/kernels/cpu/float_lanes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace zeepo {
namespace HWY_NAMESPACE {
namespace {

// One row of the table: the rows of dy at `place`, next[place], ... up to −1, added in that order, a strip of columns
// at a time so that a sum stays in a register.
template <class T, class Sum>
void sum_row(const T* dy, const std::int32_t* next, std::int32_t place, std::int64_t n, Sum* out, Write write) {
  sweep(n, [&](std::int64_t j, auto count) HWY_ATTR {
    auto sum = write == Write::add ? load(out + j, count) : zero();
    for (auto i = place; i >= 0; i = next[i]) sum = hn::Add(sum, load(dy + i * n + j, count));
    store(sum, out + j, count);
  });
}

// Every row of the table in [begin, end) is written: a sum, or zeros.
void write_table_rows(const Occurrences& found, ConstView dy, View dtable, std::int64_t begin, std::int64_t end) {
  with_float_and_sum_types(dy.dtype, dtable.dtype, [&](auto zero_of_type, auto zero_of_sum) HWY_ATTR {
    using T = decltype(zero_of_type);
    using Sum = decltype(zero_of_sum);
    const auto n = dtable.shape[-1];
    auto* table = dtable.as<Sum>();
    for (std::int64_t row = begin; row < end;) {
      auto stop = row;
      while (stop < end && found.first[stop] < 0) ++stop;
      std::memset(static_cast<void*>(table + row * n), 0, static_cast<std::size_t>((stop - row) * n) * sizeof(Sum));
      if (stop < end) sum_row(dy.as<T>(), found.next, found.first[stop], n, table + stop * n, Write::overwrite);
      row = stop + 1;
    }
  });
}

// The rows of the table whose id occurs for the first time at a place in [begin, end) are added to.
void add_table_rows(const Occurrences& found, const std::int32_t* ids, ConstView dy, View dtable, std::int64_t begin,
                    std::int64_t end) {
  with_float_and_sum_types(dy.dtype, dtable.dtype, [&](auto zero_of_type, auto zero_of_sum) HWY_ATTR {
    using T = decltype(zero_of_type);
    using Sum = decltype(zero_of_sum);
    const auto n = dtable.shape[-1];
    for (auto i = begin; i < end; ++i)
      if (found.first[ids[i]] == i)
        sum_row(dy.as<T>(), found.next, static_cast<std::int32_t>(i), n, dtable.as<Sum>() + ids[i] * n, Write::add);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace zeepo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace zeepo {
namespace {

HWY_EXPORT(write_table_rows);
HWY_EXPORT(add_table_rows);

}  // namespace

void embed(CpuStream& stream, ConstView ids, ConstView table, View y) {
  const auto n = table.shape[-1];
  const auto bytes = static_cast<std::size_t>(n) * size_of(table.dtype);
  stream.pool().for_range(ids.elements(), rows_per_task(n), [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto id = static_cast<std::size_t>(ids.as<std::int32_t>()[i]);
      std::memcpy(y.as<std::byte>() + static_cast<std::size_t>(i) * bytes, table.as<std::byte>() + id * bytes, bytes);
    }
  });
}

void embed_backward(CpuStream& stream, ConstView ids, ConstView dy, View dtable, Write write) {
  const auto count = ids.elements(), vocabulary = dtable.shape[0], n = dtable.shape[-1];
  const Occurrences found = find_occurrences(ids.as<std::int32_t>(), count, vocabulary);
  if (write == Write::overwrite)
    stream.pool().for_range(vocabulary, rows_per_task(n), [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(write_table_rows)(found, dy, dtable, begin, end);
    });
  else
    stream.pool().for_range(count, rows_per_task(n), [&](std::int64_t begin, std::int64_t end) {
      HWY_DYNAMIC_DISPATCH(add_table_rows)(found, ids.as<std::int32_t>(), dy, dtable, begin, end);
    });
}

}  // namespace zeepo
#endif
