// Makes one call of an I/O engine go wrong: the k-th, counting from 0 in the order in which the kernel is asked.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <optional>

#include "zeepo/base/error.h"
#include "zeepo/io/faults.h"

namespace zeepo {

enum class IoFault {
  none,
  error,        // EIO
  full,         // ENOSPC
  refused,      // EAGAIN: to be asked again
  shortened,    // half of it
  crooked,      // 5000 bytes, which are no whole blocks
  nothing,      // 0 bytes
  flipped_bit,  // in what was read, or in the file after it was written
};

class FaultAt final : public IoFaults {
 public:
  FaultAt(IoFault fault, int k) : fault_(fault), k_(k) {}

  // Calls so far.
  int calls() const {
    const std::lock_guard lock(mutex_);
    return calls_;
  }
  // Whether the k-th call came, and was a read.
  bool struck() const { return calls() > k_; }
  bool struck_a_read() const {
    const std::lock_guard lock(mutex_);
    return direction_ == IoDirection::read;
  }

  std::size_t ask(const IoCall& call) override {
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = call.memory.size();
    if (calls_++ != k_) return bytes;
    target_ = call;
    direction_ = call.direction;
    if (fault_ == IoFault::shortened)
      return std::max(bytes / 2 / kDirectAlignment * kDirectAlignment, kDirectAlignment);
    if (fault_ == IoFault::crooked) return std::min(bytes, 2 * kDirectAlignment);
    return bytes;
  }

  int answer(const IoCall& call, int result) override {
    const std::lock_guard lock(mutex_);
    const bool hit = target_ && target_->direction == call.direction && target_->memory.data() == call.memory.data();
    if (!hit || result < 0) return result;
    target_.reset();
    switch (fault_) {
      case IoFault::none:
      case IoFault::shortened: return result;
      case IoFault::error: return -EIO;
      case IoFault::full: return -ENOSPC;
      case IoFault::refused: return -EAGAIN;
      case IoFault::nothing: return 0;
      case IoFault::crooked:
        if (call.direction == IoDirection::read && result > 5000)
          std::memset(call.memory.data() + 5000, 0x5a, result - 5000);
        return std::min(result, 5000);
      case IoFault::flipped_bit: flip(call); return result;
    }
    return result;
  }

 private:
  static void flip(const IoCall& call) {
    const std::size_t at = call.memory.size() / 2;
    if (call.direction == IoDirection::read) {
      call.memory[at] ^= std::byte{16};
      return;
    }
    alignas(kDirectAlignment) std::byte block[kDirectAlignment];
    const auto size = static_cast<ssize_t>(sizeof block);
    if (::pread(call.file->descriptor, block, sizeof block, call.offset) != size)
      throw Error("cannot read what to flip");
    block[sizeof block - 1] ^= std::byte{1};
    if (::pwrite(call.file->descriptor, block, sizeof block, call.offset) != size) throw Error("cannot flip a bit");
  }

  const IoFault fault_;
  const int k_;
  mutable std::mutex mutex_;
  int calls_ = 0;
  std::optional<IoCall> target_;
  std::optional<IoDirection> direction_;
};

}  // namespace zeepo
