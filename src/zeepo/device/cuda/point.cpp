#include "zeepo/device/cuda/point.h"

#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {

Point point_of(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  // The thread that waits for it sleeps: there are more of them than cores.
  cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
  Point point{std::shared_ptr<void>(event, [](void* made) { (void)cudaEventDestroy(static_cast<cudaEvent_t>(made)); })};
  cuda_check(cudaEventRecord(event, stream));
  return point;
}

void start_after(cudaStream_t stream, const Point& point) {
  if (point.event) cuda_check(cudaStreamWaitEvent(stream, static_cast<cudaEvent_t>(point.event.get())));
}

bool reached(const Point& point) {
  const cudaError_t state = point.event ? cudaEventQuery(static_cast<cudaEvent_t>(point.event.get())) : cudaSuccess;
  if (state == cudaErrorNotReady) return false;
  cuda_check(state);
  return true;
}

Point point_of(CudaStream& stream) { return point_of(stream.handle()); }
void start_after(CudaStream& stream, const Point& point) { start_after(stream.handle(), point); }
void wait_for(CudaStream&, const Point& point) {
  if (point.event) cuda_check(cudaEventSynchronize(static_cast<cudaEvent_t>(point.event.get())));
}

}  // namespace zeepo
