// What tests of CUDA kernels share: values copied to the GPU and back, and results beside those of the CPU backend.
#pragma once

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <algorithm>

#include <cmath>

#include "tests/kernels/kernel_checks.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/memory.h"

namespace zeepo {

inline CudaStream& gpu() {
  static CudaStream stream;
  return stream;
}

// Any bytes on the GPU, between two pages of a pattern that a kernel must not touch; `shift` elements off alignment.
class OnGpu {
 public:
  explicit OnGpu(const TypedValues& values, std::int64_t shift = 0) : OnGpu(values.view(), shift) {}
  explicit OnGpu(ConstView host, std::int64_t shift = 0)
      : dtype_(host.dtype),
        shape_(host.shape),
        bytes_(host.bytes()),
        begin_(kGuard + static_cast<std::size_t>(shift) * size_of(host.dtype)),
        memory_(device_memory(gpu(), "device", begin_ + bytes_ + kGuard)) {
    cuda_check(cudaMemsetAsync(memory_.data(), kPattern, memory_.bytes(), gpu().handle()));
    copy_to_device(gpu(), host.data, memory_.data() + begin_, bytes_);
  }

  View view() const { return {memory_.data() + begin_, dtype_, shape_}; }
  // Waits, and checks that nothing around was written.
  TypedValues back() const {
    TypedValues values(dtype_, shape_);
    std::vector<std::byte> all(memory_.bytes());
    copy_to_host(gpu(), memory_.data(), all.data(), all.size());
    gpu().synchronize();
    const auto untouched = [](std::byte b) { return b == static_cast<std::byte>(kPattern); };
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    EXPECT_TRUE(std::all_of(all.begin(), begin, untouched)) << "written before the first element";
    EXPECT_TRUE(std::all_of(end, all.end(), untouched)) << "written past the last element";
    if (bytes_ > 0) std::memcpy(values.view().data, &*begin, bytes_);
    return values;
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr int kPattern = 0xA5;
  DType dtype_;
  Shape shape_;
  std::size_t bytes_, begin_;
  MemoryRange memory_;
};

// Integers as a view.
inline ConstView view_of(const std::vector<std::int32_t>& ids) {
  return {ids.data(), DType::i32, {static_cast<std::int64_t>(ids.size())}};
}

inline void expect_same_bits(const TypedValues& gpu_result, const TypedValues& cpu_result, const std::string& what) {
  if (gpu_result.bytes() == cpu_result.bytes()) return;
  for (std::int64_t i = 0; i < cpu_result.elements(); ++i)
    if (gpu_result[i] != cpu_result[i]) {
      ADD_FAILURE() << what << ": element " << i << " of " << cpu_result.elements() << " is " << gpu_result[i]
                    << " on the GPU and " << cpu_result[i] << " on the CPU";
      return;
    }
  ADD_FAILURE() << what << ": bits differ (a zero's sign, or NaN)";
}

// Each element within a rounding of the dtype and `slack` of fp32 arithmetic, relative to its own size and to `size`.
inline void expect_near(const TypedValues& gpu_result, const TypedValues& cpu_result, double slack, double size,
                        const std::string& what) {
  const DType dtype = cpu_result.view().dtype;
  ASSERT_EQ(gpu_result.elements(), cpu_result.elements());
  for (std::int64_t i = 0; i < cpu_result.elements(); ++i) {
    const double expected = cpu_result[i], error = std::abs(gpu_result[i] - expected);
    // Two results on either side of a tie are two roundings apart.
    const double allowed = 2 * allowed_error(dtype, std::abs(expected), slack) + slack * size;
    if (!(error <= allowed)) {
      ADD_FAILURE() << what << ": element " << i << " of " << cpu_result.elements() << " is " << gpu_result[i]
                    << " on the GPU and " << expected << " on the CPU; allowed: " << allowed;
      return;
    }
  }
}

}  // namespace zeepo
