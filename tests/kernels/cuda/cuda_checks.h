// What tests of CUDA kernels share: values that are on the CPU and on the GPU, the same call on both, and how near the
// results are.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/kernels/kernel_checks.h"
#include "zeepo/device/copy.h"
#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/memory.h"
#include "zeepo/kernels/heads.h"

namespace zeepo {

inline CudaStream& gpu() {
  static CudaStream stream;
  return stream;
}

// f(stream) on the CPU and then on the GPU.
template <class F>
void on_both(const F& f) {
  Threads cpu(2);
  f(cpu.stream);
  f(gpu());
}

inline void expect_same_bits(const TypedValues& on_gpu, const TypedValues& on_cpu, const std::string& what) {
  if (on_gpu.bytes() == on_cpu.bytes()) return;
  const auto value = [](const TypedValues& values, std::int64_t i) {
    return values.view().dtype == DType::i32 ? values.view().as<std::int32_t>()[i] : values[i];
  };
  std::size_t i = 0;
  while (on_gpu.bytes()[i] == on_cpu.bytes()[i]) ++i;
  const auto element = static_cast<std::int64_t>(i / size_of(on_cpu.view().dtype));
  ADD_FAILURE() << what << ": element " << element << " of " << on_cpu.elements() << " is " << value(on_gpu, element)
                << " on the GPU and " << value(on_cpu, element) << " on the CPU";
}

// Each element within two roundings of the dtype (two results on either side of a tie are so far apart) and `slack` of
// fp32 arithmetic, relative to its own size and to `size`, that of the numbers it was summed from.
inline void expect_near(const TypedValues& on_gpu, const TypedValues& on_cpu, double slack, double size,
                        const std::string& what) {
  for (std::int64_t i = 0; i < on_cpu.elements(); ++i) {
    const double expected = on_cpu[i], got = on_gpu[i];
    const double allowed = 2 * allowed_error(on_cpu.view().dtype, expected, slack) + slack * size;
    if (std::isnan(expected) && std::isnan(got)) continue;
    if (expected == got || std::abs(got - expected) <= allowed) continue;
    ADD_FAILURE() << what << ": element " << i << " of " << on_cpu.elements() << " is " << got << " on the GPU and "
                  << expected << " on the CPU; allowed: " << allowed;
    return;
  }
}

// The same values in both memories. On the GPU they stand between bytes that a kernel must not touch, `shift` elements
// off the alignment of a tensor.
class Twin {
 public:
  explicit Twin(TypedValues values, std::int64_t shift = 0)
      : cpu_(std::move(values)),
        begin_(kGuard + static_cast<std::size_t>(shift) * size_of(cpu_.view().dtype)),
        gpu_(device_memory(gpu(), "device", begin_ + cpu_.bytes().size() + kGuard)) {
    cuda_check(cudaMemsetAsync(gpu_.data(), kPattern, gpu_.bytes(), gpu().handle()));
    copy_to_device(gpu(), cpu_.bytes().data(), gpu_.data() + begin_, cpu_.bytes().size());
    gpu().synchronize();
  }
  Twin(DType dtype, Shape shape, std::int64_t shift = 0) : Twin(garbage(dtype, shape), shift) {}
  static Twin random(DType dtype, Shape shape, std::uint64_t seed, float deviation = 1, std::int64_t shift = 0) {
    return Twin(TypedValues::random(dtype, shape, seed, deviation), shift);
  }
  static Twin integers(const std::vector<std::int32_t>& values, Shape shape) {
    TypedValues made(DType::i32, shape);
    std::memcpy(made.view().data, values.data(), values.size() * sizeof(std::int32_t));
    return Twin(std::move(made));
  }

  View on(CpuStream&) { return cpu_.view(); }
  View on(CudaStream&) { return view(); }
  const TypedValues& cpu() const { return cpu_; }
  View view() const { return {gpu_.data() + begin_, cpu_.view().dtype, cpu_.view().shape}; }  // the GPU's
  // What the GPU has now; checks that nothing around it was written.
  TypedValues back() const {
    TypedValues values = cpu_;
    std::vector<std::byte> all(gpu_.bytes());
    copy_to_host(gpu(), gpu_.data(), all.data(), all.size());
    gpu().synchronize();
    const auto untouched = [](std::byte b) { return b == static_cast<std::byte>(kPattern); };
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(cpu_.bytes().size());
    EXPECT_TRUE(std::all_of(all.begin(), begin, untouched)) << "written before the first element";
    EXPECT_TRUE(std::all_of(end, all.end(), untouched)) << "written past the last element";
    std::copy(begin, end, values.view().as<std::byte>());
    return values;
  }

  void expect_same_bits(const std::string& what) const { zeepo::expect_same_bits(back(), cpu_, what); }

  // The same bits, but that a NaN may be another NaN.
  void expect_same_numbers(const std::string& what) const {
    const TypedValues got = back();
    for (std::int64_t i = 0; i < cpu_.elements(); ++i) {
      const bool same =
          std::isnan(cpu_[i]) ? std::isnan(got[i]) : got[i] == cpu_[i] && std::signbit(got[i]) == std::signbit(cpu_[i]);
      if (same) continue;
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << " on the GPU and " << cpu_[i] << " on the CPU";
      return;
    }
  }

  void expect_near(double slack, double size, const std::string& what) const {
    zeepo::expect_near(back(), cpu_, slack, size, what);
  }

 private:
  static constexpr std::size_t kGuard = 256;
  static constexpr int kPattern = 0xA5;

  // NaN, so that an element that no kernel writes shows.
  static TypedValues garbage(DType dtype, Shape shape) {
    TypedValues values(dtype, shape);
    for (std::int64_t i = 0; i < values.elements(); ++i) values.set(i, std::nanf(""));
    return values;
  }
  TypedValues cpu_;
  std::size_t begin_;
  MemoryRange gpu_;
};

inline std::string name_of_case(DType dtype, std::int64_t a, std::int64_t b = 0, std::int64_t c = 0) {
  return fmt::format("{} ({}, {}, {})", name_of(dtype), a, b, c);
}

}  // namespace zeepo
