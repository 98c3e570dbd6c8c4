#include "zeepo/device/copy_lane.h"

#include "zeepo/device/cuda/cuda_stream.h"
#include "zeepo/device/cuda/point.h"

namespace zeepo {
namespace {

class CudaLane final : public CopyLane {
 public:
  explicit CudaLane(const CudaStream& compute) : device_(compute.device()) {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_.reset(stream);
  }

  void start_after(const Point& point) override {
    cuda_check(cudaSetDevice(device_));  // of this thread
    zeepo::start_after(stream_.get(), point);
  }
  void copy(std::span<const LinkCopy> copies) override {
    for (const LinkCopy& one : copies)
      cuda_check(cudaMemcpyAsync(one.to, one.from, one.bytes, cudaMemcpyDefault, stream_.get()));
    cuda_check(cudaStreamSynchronize(stream_.get()));
  }

 private:
  int device_;
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> stream_;
};

}  // namespace

std::unique_ptr<CopyLane> make_copy_lane(CudaStream& compute) { return std::make_unique<CudaLane>(compute); }

}  // namespace zeepo
