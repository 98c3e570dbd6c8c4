#include "zeepo/device/copy_lane.h"

#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {
namespace {

cudaEvent_t event_of(const Point& point) { return static_cast<cudaEvent_t>(point.event.get()); }

class CudaLane final : public CopyLane {
 public:
  explicit CudaLane(const CudaStream& compute) : device_(compute.device()) {
    cudaStream_t stream = nullptr;
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_.reset(stream);
  }

  void start_after(const Point& point) override {
    cuda_check(cudaSetDevice(device_));  // of this thread
    if (point.event) cuda_check(cudaStreamWaitEvent(stream_.get(), event_of(point)));
  }
  void copy(const void* from, void* to, std::size_t bytes) override {
    cuda_check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_.get()));
    cuda_check(cudaStreamSynchronize(stream_.get()));
  }

 private:
  int device_;
  std::unique_ptr<cudaStream_t, Destroy<cudaStream_t, cudaStreamDestroy>> stream_;
};

}  // namespace

Point point_of(CudaStream& stream) {
  cudaEvent_t event = nullptr;
  // The thread that waits for it sleeps: there are more of them than cores.
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  Point point{std::shared_ptr<void>(event, [](void* made) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(made)); })};
  cuda_check(cudaEventRecord(event, stream.handle()));
  return point;
}

std::unique_ptr<CopyLane> make_copy_lane(CudaStream& compute) { return std::make_unique<CudaLane>(compute); }

}  // namespace zeepo
