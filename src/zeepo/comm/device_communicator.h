// The ranks' collectives on a device's memory, beside its compute.
//
// The same calls, sums and rules as a Communicator's, whatever carries them. A call starts when `start` has been
// reached and returns a Point: where it is done. The memory it works on must stay until then. Calls come from one
// thread at a time.
#pragma once

#include <memory>
#include <span>

#include "zeepo/comm/communicator.h"
#include "zeepo/device/copy_lane.h"

namespace zeepo {

class DeviceCommunicator {
 public:
  virtual ~DeviceCommunicator() = default;

  [[nodiscard]] virtual Point all_gather(const Point& start, ConstView shard, View full, const Label& label) = 0;
  [[nodiscard]] virtual Point reduce_scatter(const Point& start, ConstView full, View scratch, View shard,
                                             const Label& label, const SumInto& how = {}) = 0;
  [[nodiscard]] virtual Point all_reduce(const Point& start, View x, const Label& label) = 0;
  [[nodiscard]] virtual Point broadcast(const Point& start, View x, int root, const Label& label) = 0;
  // Throws Error when a call that has returned a Point has failed since: what it should have brought is not there. Any
  // thread may ask.
  virtual void check() const {}
};

// Through host memory by `ranks`, which is borrowed: a call is done when it returns. A GPU's memory is copied through
// `staging`, pinned host memory, a part at a time if it is large; a CPU's is host memory itself, and wants none.
inline constexpr std::size_t kStagingBytes = std::size_t{32} << 20;
std::unique_ptr<DeviceCommunicator> through_host(CpuStream& compute, Communicator& ranks, std::span<std::byte> staging);
std::unique_ptr<DeviceCommunicator> through_host(CudaStream& compute, Communicator& ranks,
                                                 std::span<std::byte> staging);

}  // namespace zeepo
