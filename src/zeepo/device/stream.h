// An ordered queue of work on one device. A kernel or copy given to a stream runs after everything given before it.
//
// The stream's type picks the backend: `dispatch(stream, [&](auto& s) { gelu(s, x, y); })` is the one place where that
// happens. A dry stream does nothing: the first pass of a model runs on it, with shapes only, to plan memory and time.
// CudaStream is in device/cuda/cuda_stream.h; in a build without CUDA it is a name only, and nothing asks for its
// kernels.
#pragma once

#include <utility>

#include "zeepo/base/thread_pool.h"
#include "zeepo/device/simulated_time.h"

namespace zeepo {

enum class Backend { dry, cpu, cuda };
inline constexpr bool kHasCuda = ZEEPO_HAS_CUDA;

class Stream {
 public:
  virtual ~Stream() = default;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Backend backend() const { return backend_; }
  bool dry() const { return backend_ == Backend::dry; }
  // Whose work this is: a dry stream stands for that of another backend.
  virtual Backend plays() const { return backend_; }
  // Returns when all work given to the stream so far is done; throws what any of it threw.
  virtual void synchronize() = 0;

 protected:
  explicit Stream(Backend backend) : backend_(backend) {}

 private:
  Backend backend_;
};

// With a clock, kernels take the time that they would on another backend (kernels/dry).
class DryStream final : public Stream {
 public:
  explicit DryStream(Backend plays = Backend::cpu, SimulatedTime* time = nullptr)
      : Stream(Backend::dry), plays_(plays), time_(time) {}
  Backend plays() const override { return plays_; }
  SimulatedTime* time() const { return time_; }
  void synchronize() override {
    if (time_) time_->wait_until(time_->computed());
  }

 private:
  Backend plays_;
  SimulatedTime* time_;
};
// The clock of a dry stream; null: none, or another stream.
inline SimulatedTime* simulated_time(Stream& stream) {
  return stream.dry() ? static_cast<DryStream&>(stream).time() : nullptr;
}

// Runs each kernel at once, in the calling thread and the pool's; it is never behind.
class CpuStream final : public Stream {
 public:
  explicit CpuStream(ThreadPool& pool) : Stream(Backend::cpu), pool_(&pool) {}
  ThreadPool& pool() { return *pool_; }
  void synchronize() override {}

 private:
  ThreadPool* pool_;
};

class CudaStream;
CudaStream& as_cuda(Stream& stream);  // where the type is known

template <class F>
void dispatch(Stream& stream, F&& f) {
  switch (stream.backend()) {
    case Backend::dry: return;
    case Backend::cpu: return f(static_cast<CpuStream&>(stream));
    case Backend::cuda:
      if constexpr (kHasCuda) f(as_cuda(stream));
      return;
  }
}

// Kernels: as dispatch, and a dry stream's clock goes forward by what they would take.
template <class F>
void compute_on(Stream& stream, F&& f) {
  if (!stream.dry()) return dispatch(stream, std::forward<F>(f));
  if (auto& dry = static_cast<DryStream&>(stream); dry.time() != nullptr) f(dry);
}

}  // namespace zeepo
