#include "zeepo/device/cuda/cuda_stream.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

#include "tests/support/errors.h"
#include "zeepo/device/copy.h"
#include "zeepo/memory/arena_tier.h"

namespace zeepo {
namespace {

TEST(CudaStream, DispatchPicksIt) {
  CudaStream cuda;
  Stream& stream = cuda;
  int runs = 0;
  dispatch(stream, [&]<class S>(S& s) {
    ++runs;
    if constexpr (std::is_same_v<S, CudaStream>)
      EXPECT_EQ(&s, &cuda);
    else
      FAIL() << "another backend's";
  });
  EXPECT_EQ(runs, 1);
}

TEST(CudaStream, CopiesBringBytesThereAndBackFromAnyHostMemory) {
  CudaStream stream;
  std::vector<int> from(100'000), back(from.size());
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<int>(i * i);
  const std::size_t bytes = from.size() * sizeof(int);
  const MemoryRange device = device_memory(stream, "device", bytes), pinned = transfer_memory(stream, "host", bytes);
  copy_to_device(stream, from.data(), device.data(), bytes);
  copy_to_host(stream, device.data(), pinned.data(), bytes);
  copy_to_device(stream, pinned.data(), device.data(), bytes);
  copy_to_host(stream, device.data(), back.data(), bytes);
  stream.synchronize();
  EXPECT_EQ(back, from);
}

TEST(CudaStream, SaysWhichGpusThereAre) {
  EXPECT_TRUE(names(error_text([] { CudaStream stream(99); }), "GPU 99", "nvidia-smi"));
  EXPECT_TRUE(names(error_text([] { CudaStream stream(-1); }), "GPU -1"));
}

TEST(CudaStream, RefusesMoreWorkspaceThanThereIs) {
  CudaStream stream;
  EXPECT_NE(stream.workspace(CudaStream::kWorkspaceBytes), nullptr);
  EXPECT_TRUE(names(error_text([&] { (void)stream.workspace(CudaStream::kWorkspaceBytes + 1); }), "workspace"));
}

TEST(CudaMemory, ATierLeasesAddressesOfTheGpu) {
  CudaStream stream;
  ArenaTier tier("device", 1 << 20, stream);
  const Block a = tier.allocate(1000, Kind::params), b = tier.allocate(1000, Kind::grads);
  EXPECT_EQ(b.data() - a.data(), 1024);
  cudaPointerAttributes attributes{};
  cuda_check(cudaPointerGetAttributes(&attributes, b.data()));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
}

TEST(CudaMemory, RunningOutNamesWhatWasAskedAndWhatIsFree) {
  CudaStream stream;
  const auto text = error_text([&] { ArenaTier tier("device", std::size_t{1} << 45, stream); });
  EXPECT_TRUE(names(text, "device memory", "32.00 TiB", "GPU 0", "are free", "--memory device=", "nvidia-smi")) << text;
  stream.synchronize();  // the failed allocation leaves no error behind
}

}  // namespace
}  // namespace zeepo
