#include "zeepo/device/mapped_memory.h"

#include <cuda.h>

#include <map>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"
#include "zeepo/device/cuda/cuda_stream.h"

namespace zeepo {
namespace {

constexpr unsigned kSince = 12000;  // the version of CUDA whose functions are meant

// By name: the driver's library is not linked, so that a program starts where there is none.
template <class Function>
Function driver_function(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  cuda_check(cudaGetDriverEntryPointByVersion(name, &found, kSince, cudaEnableDefault, &result));
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw Error("CUDA: the driver has no {}; install a driver of CUDA 12 or newer", name);
  return reinterpret_cast<Function>(found);
}

struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity =
      driver_function<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(&cuMemAddressReserve) reserve = driver_function<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free_addresses = driver_function<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemCreate) create = driver_function<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = driver_function<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemMap) map = driver_function<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = driver_function<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = driver_function<decltype(&cuMemSetAccess)>("cuMemSetAccess");
  decltype(&cuGetErrorString) text = driver_function<decltype(&cuGetErrorString)>("cuGetErrorString");
};

CUdeviceptr pointer(const std::byte* at) { return reinterpret_cast<CUdeviceptr>(at); }

class CudaMapped final : public MappedMemory {
 public:
  explicit CudaMapped(const CudaStream& stream) : device_(stream.device()) {
    place_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    place_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device_};
    check(driver_.granularity(&granularity_, &place_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "granularity");
  }

  ~CudaMapped() override {
    (void)cudaDeviceSynchronize();  // whoever goes after an error may not have waited
    for (const auto& [at, bytes] : mapped_) (void)driver_.unmap(pointer(at), bytes);
    for (const auto piece : pieces_) (void)driver_.release(piece);
    for (const auto& [at, bytes] : reserved_) (void)driver_.free_addresses(pointer(at), bytes);
  }

  std::size_t granularity() const override { return granularity_; }

  std::byte* reserve(std::size_t bytes) override {
    CUdeviceptr at = 0;
    check(driver_.reserve(&at, bytes, 0, 0, 0), "addresses", bytes);
    auto* const begin = reinterpret_cast<std::byte*>(at);
    reserved_[begin] = bytes;
    return begin;
  }

  std::size_t take(std::size_t bytes) override {
    CUmemGenericAllocationHandle piece = 0;
    const CUresult code = driver_.create(&piece, bytes, &place_, 0);
    if (code == CUDA_ERROR_OUT_OF_MEMORY) throw_out_of_memory(bytes);
    check(code, "memory", bytes);
    pieces_.push_back(piece);
    return pieces_.size() - 1;
  }

  void map(std::byte* at, std::size_t bytes, std::size_t piece) override {
    unmap(at, bytes);
    check(driver_.map(pointer(at), bytes, 0, pieces_[piece], 0), "a mapping", bytes);
    mapped_[at] = bytes;
    const CUmemAccessDesc access{.location = place_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    check(driver_.set_access(pointer(at), bytes, &access, 1), "access", bytes);
  }

  void unmap(std::byte* at, std::size_t bytes) noexcept override {
    if (mapped_.erase(at) > 0) (void)driver_.unmap(pointer(at), bytes);
  }

 private:
  void check(CUresult code, const char* what, std::size_t bytes = 0) const {
    if (code == CUDA_SUCCESS) return;
    const char* text = nullptr;
    (void)driver_.text(code, &text);
    throw Error("GPU {}: {} for {}: {}", device_, what, format_size(static_cast<std::int64_t>(bytes)),
                text ? text : "unknown error");
  }

  [[noreturn]] void throw_out_of_memory(std::size_t bytes) const {
    std::size_t free_bytes = 0, all_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, &all_bytes));
    const auto text = [](std::size_t size) { return format_size(static_cast<std::int64_t>(size)); };
    throw Error(
        "GPU {}: cannot take {} more: {} of its {} are free; keep less on the GPU, or end what else runs there "
        "(nvidia-smi shows it)",
        device_, text(bytes), text(free_bytes), text(all_bytes));
  }

  Driver driver_;
  int device_;
  CUmemAllocationProp place_{};
  std::size_t granularity_ = 0;
  std::map<std::byte*, std::size_t> reserved_, mapped_;
  std::vector<CUmemGenericAllocationHandle> pieces_;
};

}  // namespace

std::unique_ptr<MappedMemory> make_mapped_memory(CudaStream& stream) { return std::make_unique<CudaMapped>(stream); }

}  // namespace zeepo
