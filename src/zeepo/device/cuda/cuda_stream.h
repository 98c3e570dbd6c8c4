// A stream of one GPU, with what kernels on it share: a cuBLASLt handle and a workspace of fixed size, taken once.
//
// A kernel may use the whole workspace during its call, since the stream runs one after another; nothing in it outlives
// the call. The GPU is the current one of the thread that makes the stream; another thread calls make_current() first.
// Kernels return when they are queued; synchronize() throws what any of them met.
#pragma once

#include <cuda_runtime_api.h>

#include <optional>

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
  cudaStream_t handle() const { return followed_.value_or(stream_.get()); }
  // Work goes to a stream of another library's from now on, behind all that was given before. That stream outlives
  // this one.
  void follow(cudaStream_t stream);
  cublasLtHandle_t blas() const { return blas_.get(); }
  // 256-byte aligned. Throws Error when a kernel asks for more than there is.
  std::byte* workspace(std::size_t bytes);

  // Made when they are first asked for.
  Uploads& uploads();

  // See device/devices.h.
  void set_batch_invariant(BatchInvariant wanted) { batch_invariant_ = wanted; }
  bool batch_invariant() const { return batch_invariant_ == BatchInvariant::yes; }
  // Whether no kernel or copy writes weights between their uses from now on: kernels may then ask for weights while
  // what was given to the stream before still runs.
  void set_weights_stay(bool stay) { weights_stay_ = stay && architecture_ >= 9; }
  bool weights_stay() const { return weights_stay_; }

  int multiprocessors() const { return multiprocessors_; }
  int architecture() const { return architecture_; }  // the first number of its compute capability
  // kCounters numbers that are zero, and that a kernel leaves zero.
  static constexpr std::size_t kCounters = 4096;
  unsigned* counters();

  void make_current() const;
  void synchronize() override;

 private:
  int device_;
  int multiprocessors_ = 0, architecture_ = 0;
  BatchInvariant batch_invariant_ = BatchInvariant::no;
  bool weights_stay_ = false;
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> stream_;
  std::optional<cudaStream_t> followed_;  // none: the own one
  std::unique_ptr<cublasLtHandle_t, Destroy<cublasLtHandle_t, cublasLtDestroy>> blas_;
  MemoryRange workspace_;
  std::unique_ptr<Uploads> uploads_;
};

}  // namespace zeepo
