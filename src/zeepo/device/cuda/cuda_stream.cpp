#include "zeepo/device/cuda/cuda_stream.h"

#include "zeepo/base/error.h"
#include "zeepo/device/cuda/gpu_memory.h"
#include "zeepo/device/cuda/point.h"
#include "zeepo/device/cuda/uploads.h"

namespace zeepo {

CudaStream::CudaStream(int device) : Stream(Backend::cuda), device_(device) {
  const int devices = cuda_devices();
  if (device < 0 || device >= devices)
    throw Error("GPU {}: this machine has {} that CUDA can use; see nvidia-smi, or compute on the CPU", device,
                devices);
  (void)cuda_memory(device);  // throws where there is no room for a program at all
  make_current();
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
  cublasLtHandle_t blas = nullptr;
  cuda_check(cublasLtCreate(&blas));
  blas_.reset(blas);
  cuda_check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device_));
  cuda_check(cudaDeviceGetAttribute(&architecture_, cudaDevAttrComputeCapabilityMajor, device_));
  workspace_ = gpu_memory(device_, "the kernels' workspace", kWorkspaceBytes + kCounters * sizeof(unsigned));
  cuda_check(cudaMemsetAsync(counters(), 0, kCounters * sizeof(unsigned), stream));
}

CudaStream::~CudaStream() = default;

Uploads& CudaStream::uploads() {
  if (!uploads_) uploads_ = std::make_unique<Uploads>(*this);
  return *uploads_;
}

std::byte* CudaStream::workspace(std::size_t bytes) {
  if (bytes > kWorkspaceBytes)
    throw Error("GPU {}: a kernel asks for {} bytes of workspace; there are {}", device_, bytes, kWorkspaceBytes);
  return workspace_.data();
}

void CudaStream::follow(cudaStream_t stream) {
  if (stream == handle()) return;
  start_after(stream, point_of(handle()));
  followed_ = stream;
}

unsigned* CudaStream::counters() { return reinterpret_cast<unsigned*>(workspace_.data() + kWorkspaceBytes); }

void CudaStream::make_current() const { cuda_check(cudaSetDevice(device_)); }

void CudaStream::synchronize() { cuda_check(cudaStreamSynchronize(handle())); }

CudaStream& as_cuda(Stream& stream) { return static_cast<CudaStream&>(stream); }

}  // namespace zeepo
