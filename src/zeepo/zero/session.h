// One rank: its threads, its device with the memory and the stream, its place among the ranks. Tensors can be made on
// the thread that holds a Session, and must be gone before it is.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "zeepo/base/thread_pool.h"
#include "zeepo/comm/communicator.h"
#include "zeepo/device/devices.h"
#include "zeepo/memory/arena_tier.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

// The communicator of a rank that has no others.
Communicator& alone();

// The most bytes that a rank may use of its device's memory: `wanted`, or what there is where that is 0.
std::int64_t device_budget(Backend backend, int gpu, std::int64_t wanted, int ranks_on_node);

// The same of a GPU with this much free, or this rank's part of that.
std::int64_t gpu_budget(std::size_t free_bytes);

// The bytes of the device and of the host where both are one memory, as on the CPU. What is given (above 0) stays; the
// rest is shared. First each gets what it needs, the device before the host; of what is left the host gets an eighth.
struct SharedBytes {
  std::int64_t device = 0, host = 0;
  friend bool operator==(const SharedBytes&, const SharedBytes&) = default;
};
SharedBytes share_memory(std::int64_t all, const SharedBytes& given, const SharedBytes& needs = {});

class Session {
 public:
  struct Options {
    Backend backend = Backend::cpu;
    int gpu = 0;  // which one, with Backend::cuda
    BatchInvariant batch_invariant = BatchInvariant::no;
    int threads = 0;                // 0: see choose_threads
    std::int64_t device_bytes = 0;  // budget of the device tier; 0: this rank's part of what the machine has
    ArenaTier::Taken device_taken = ArenaTier::Taken::at_once;
    int ranks_on_node = 1;
    LowerTiers::Options lower = {};  // host_bytes 0: the same; where both are one memory they share it (share_memory)
    Timeline* timeline = nullptr;    // must outlive the session
  };

  // A session that computes, alone or as one of several ranks; the communicator is borrowed.
  explicit Session(const Options& options, Communicator& communicator = alone());
  // The same run dry: shapes and addresses, no memory, no arithmetic, nothing sent. With a clock, which is borrowed,
  // the time that it would take.
  static Session dry(Communicator& communicator = alone(), const LowerTiers::Options& lower = {},
                     Backend plays = Backend::cpu, SimulatedTime* time = nullptr);

  ArenaTier& memory() { return *memory_; }
  LowerTiers& lower() { return *lower_; }
  const Usage& peak(Place place) const;
  std::size_t high_water(Place place) const;
  std::size_t budget_bytes(Place place) const;
  void restart_peaks();
  // By place: the peaks since the last call. peak() stays as it is.
  std::array<Usage, kPlaces.size()> take_recent_peaks();
  // "device memory: params 4.00 KiB; host memory: ...": what is held besides the session's own buffers; empty: nothing.
  std::string held() const;
  // Throws Error naming tier, kind and bytes of what is still held: for when whoever used the session is gone.
  void check_empty() const;
  Stream& compute() { return *compute_; }
  Communicator& communicator() { return *communicator_; }
  Stream& host() { return *host_; }
  ThreadPool* pool() { return pool_.get(); }  // null in a dry session

 private:
  Session(std::unique_ptr<ThreadPool> pool, std::unique_ptr<Stream> compute, std::unique_ptr<Stream> host,
          std::unique_ptr<ArenaTier> memory, std::unique_ptr<LowerTiers> lower, Communicator& communicator);

  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Stream> compute_;
  std::unique_ptr<Stream> own_host_;  // null where the host is the device
  Stream* host_;
  std::unique_ptr<ArenaTier> memory_;
  std::unique_ptr<LowerTiers> lower_;
  Communicator* communicator_;
  std::unique_ptr<DeviceScope> scope_;
};

}  // namespace zeepo
