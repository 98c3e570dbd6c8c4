#include "zeepo/device/devices.h"

#include "zeepo/base/error.h"
#include "zeepo/device/weights_stay.h"

namespace zeepo {
namespace {

[[noreturn]] void refuse() {
  throw Error("this build computes on the CPU only: it was made without CUDA; use --device cpu");
}

}  // namespace

int cuda_devices() { return 0; }
std::unique_ptr<Stream> make_cuda_stream(int, BatchInvariant) { refuse(); }
void follow_stream(Stream&, std::uintptr_t) { refuse(); }
void set_weights_stay(Stream&, bool) {}
DeviceMemory cuda_memory(int) { refuse(); }

}  // namespace zeepo
