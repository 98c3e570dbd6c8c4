// A latch that a CUDA stream stands still before.
#pragma once

#include <cuda_runtime_api.h>

#include <latch>
#include <memory>
#include <utility>

#include "zeepo/device/cuda/check.h"

namespace zeepo {

// Opens at its end at the latest. CUDA's thread holds the latch for as long as it waits, whatever becomes of the test.
class BlockedStream {
 public:
  BlockedStream() = default;
  ~BlockedStream() { open(); }
  BlockedStream(const BlockedStream&) = delete;
  BlockedStream& operator=(const BlockedStream&) = delete;

  void block(cudaStream_t stream) {
    const auto wait = [](void* held) {
      const std::unique_ptr<Latch> latch(static_cast<Latch*>(held));
      (*latch)->wait();
    };
    auto held = std::make_unique<Latch>(latch_);
    cuda_check(cudaLaunchHostFunc(stream, wait, held.get()));
    (void)held.release();  // to CUDA
  }
  void wait() { latch_->wait(); }
  void open() {
    if (!std::exchange(opened_, true)) latch_->count_down();
  }

 private:
  using Latch = std::shared_ptr<std::latch>;
  Latch latch_ = std::make_shared<std::latch>(1);
  bool opened_ = false;
};

}  // namespace zeepo
