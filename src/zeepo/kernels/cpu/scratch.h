// Working memory of a kernel: one fp32 buffer a thread, kept between calls and grown to the largest request so far.
//
// A kernel asks once per task for all it needs and carves it up; the next request of the same thread takes the same
// memory. Requests are bounded by block sizes, not by tensors, so that the steady state allocates nothing.
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>

namespace zeepo::cpu {

inline float* scratch(std::int64_t elements) {
  thread_local hwy::AlignedFreeUniquePtr<float[]> buffer;
  thread_local std::int64_t capacity = 0;
  if (elements > capacity) {
    buffer = hwy::AllocateAligned<float>(static_cast<std::size_t>(elements));
    capacity = elements;
  }
  return buffer.get();
}

// Rounds up so that what is carved after it starts on a cache line.
constexpr std::int64_t line_aligned(std::int64_t elements) { return (elements + 15) / 16 * 16; }

}  // namespace zeepo::cpu
