// Steps pieces of optimizer state in host memory on the host's threads, beside a device that steps the others.
//
// Gradients, and weights that live on the device, come down into a ring of host buffers; the host steps the state where
// it is; the weights go back up. Each of the three is done on a thread of its own, piece after piece in the order
// given: the rank's thread only hands out the work. What a piece names must stay, and its gradients as they are, until
// it is done. All calls come from the rank's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "zeepo/base/thread_pool.h"
#include "zeepo/device/view.h"
#include "zeepo/memory/lower_tiers.h"

namespace zeepo {

// Of a rank's `threads`, those that step: some cores are left to the rank's own thread and to those that wait for
// copies.
int host_step_threads(int threads);

class HostStepper {
 public:
  struct Piece {
    ConstView grads;                // on the device
    View param;                     // on the device; empty where the host has the weights itself
    std::vector<Completion> after;  // before the state may be changed
    // Called on a thread of the stepper with the host's copies; `param` is empty where it was.
    std::function<void(Stream& host, const View& grads, const View& param)> step;
    About gradients, parameters, state;
  };
  struct Done {
    Completion stepped;  // the state
    Completion weights;  // where the compute uses them
  };
  // Bytes of a buffer for a piece.
  static std::size_t slot_bytes(std::size_t grads_bytes, std::size_t param_bytes);

  HostStepper(LowerTiers& tiers, std::size_t slot_bytes, int count, Timeline* timeline);
  // Waits for what has been given out.
  ~HostStepper();

  [[nodiscard]] Done run(Piece piece);
  // Waits until nothing is on its way; then throws what any of it threw.
  void drain();

 private:
  struct Slot {
    Block memory;
    Completion free;
  };

  LowerTiers& tiers_;
  Timeline* timeline_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  // Made when first used.
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<CpuStream> stream_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace zeepo
