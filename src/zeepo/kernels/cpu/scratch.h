// Working memory of a kernel: fp32 buffers of the calling thread, kept between calls and grown to the largest request
// so far.
//
// `task` is for what one task needs: it asks once and carves it up, and the next task of the same thread takes the same
// memory. `call` is for what the caller prepares for, or collects from, all tasks of one call. `panels` are those of a
// small product inside a task. Requests are bounded by block sizes and rows, not by tensors, so that the steady state
// allocates nothing.
#pragma once

#include <hwy/aligned_allocator.h>

#include <cstddef>
#include <cstdint>

namespace zeepo::cpu {

enum class Scratch { task, call, panels };

template <Scratch use = Scratch::task>
float* scratch(std::int64_t elements) {
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

// Takes pieces off a request one after the other, each on its own cache lines.
class Carve {
 public:
  explicit Carve(float* from) : next_(from) {}
  float* operator()(std::int64_t elements) {
    float* piece = next_;
    next_ += line_aligned(elements);
    return piece;
  }

 private:
  float* next_;
};

}  // namespace zeepo::cpu
