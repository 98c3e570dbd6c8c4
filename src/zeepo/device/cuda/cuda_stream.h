// A stream of one GPU, with what kernels on it share: a cuBLASLt handle and a workspace of fixed size, taken once.
//
// A kernel may use the whole workspace during its call, since the stream runs one after another; nothing in it outlives
// the call. The GPU is the current one of the thread that makes the stream; another thread calls make_current() first.
// Kernels return when they are queued; synchronize() throws what any of them met.
#pragma once

#include <cuda_runtime_api.h>

#include "zeepo/device/cuda/check.h"
#include "zeepo/device/devices.h"
#include "zeepo/device/memory.h"
#include "zeepo/device/stream.h"

namespace zeepo {

class Uploads;

class CudaStream final : public Stream {
 public:
  static constexpr std::size_t kWorkspaceBytes = std::size_t{96} << 20;

  // Throws Error when there is no such GPU or it has no room for the workspace.
  explicit CudaStream(int device = 0);
  ~CudaStream() override;

  int device() const { return device_; }
  cudaStream_t handle() const { return stream_.get(); }
  cublasLtHandle_t blas() const { return blas_.get(); }
  // 256-byte aligned. Throws Error when a kernel asks for more than there is.
  std::byte* workspace(std::size_t bytes);

  // Made when they are first asked for.
  Uploads& uploads();

  // See device/devices.h.
  void set_batch_invariant(BatchInvariant wanted) { batch_invariant_ = wanted; }
  bool batch_invariant() const { return batch_invariant_ == BatchInvariant::yes; }

  void make_current() const;
  void synchronize() override;

 private:
  int device_;
  BatchInvariant batch_invariant_ = BatchInvariant::no;
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> stream_;
  std::unique_ptr<cublasLtHandle_t, Destroy<cublasLtHandle_t, cublasLtDestroy>> blas_;
  MemoryRange workspace_;
  std::unique_ptr<Uploads> uploads_;
};

}  // namespace zeepo
