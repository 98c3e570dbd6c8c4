// What kernel tests share: a stream of some threads, closeness in the units of a dtype, and bits that no thread count
// changes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "tests/kernels/typed_values.h"
#include "zeepo/device/stream.h"

namespace zeepo {

struct Threads {
  explicit Threads(int threads) : pool(threads), stream(pool) {}
  ThreadPool pool;
  CpuStream stream;
};

// How far a result may be from the exact one: a rounding to `dtype` and `slack` of fp32 arithmetic, relative to `size`.
// Below the smallest normal fp16 number, that number's rounding.
inline double allowed_error(DType dtype, double size, double slack) {
  const double rounding = dtype == DType::f32 ? 0 : 1.01 * rounding_of(dtype) * std::abs(size);
  return rounding + slack * std::abs(size) + (dtype == DType::f16 ? 0x1p-24 : 1e-30);
}

// `run` computes on the stream and returns its results; they must have the same bits for 1 to 5 threads.
inline void expect_same_bits_for_any_thread_count(const std::function<std::vector<TypedValues>(CpuStream&)>& run) {
  Threads one(1);
  const auto expected = run(one.stream);
  for (const int threads : {2, 3, 5}) {
    Threads some(threads);
    const auto results = run(some.stream);
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(results[i].bytes() == expected[i].bytes()) << threads << " threads, result " << i;
  }
}

}  // namespace zeepo
