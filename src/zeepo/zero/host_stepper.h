// Steps pieces of optimizer state in host memory on the host's threads, beside a device that steps the others.
//
// Gradients, and weights that live on the device, are downloaded into a ring of host buffers; the host steps the state
// in place; the weights are uploaded again. Download, step and upload have a thread each and take the jobs in the order
// of run(). The memory that a job names must stay, and its gradients unchanged, until the job is done. All calls come
// from the rank's thread.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "zeepo/base/thread_pool.h"
#include "zeepo/device/view.h"
#include "zeepo/memory/lower_tiers.h"

namespace zeepo {

// How many of a rank's `threads` step: the rank's own thread and the threads that wait for copies need cores too.
int host_step_threads(int threads);

class HostStepper {
 public:
  struct Job {
    ConstView grads;                // on the device
    View param;                     // on the device; empty where the host has the weights itself
    std::vector<Completion> after;  // the state may be changed when these are done
    // Called on a thread of the stepper with the host's copies; its `param` is empty where Job::param is empty.
    std::function<void(Stream& host, const View& grads, const View& param)> step;
    About gradients, parameters, state;
  };
  struct Done {
    Completion stepped;  // the state is stepped
    Completion weights;  // the weights have arrived where the compute uses them
  };
  // Bytes of a buffer for a job.
  static std::size_t slot_bytes(std::size_t grads_bytes, std::size_t param_bytes);

  HostStepper(LowerTiers& tiers, std::size_t slot_bytes, int count, Timeline* timeline);
  // Waits for all jobs.
  ~HostStepper();

  [[nodiscard]] Done run(Job job);
  // Waits for all jobs, then throws the first exception of any of them.
  void drain();

 private:
  static Completion simulated(SimulatedTime& time, std::int64_t elements, const std::vector<Completion>& after);

  struct Slot {
    Block memory;
    Completion free;
  };

  LowerTiers& tiers_;
  Timeline* timeline_;
  std::vector<Slot> slots_;
  std::size_t next_ = 0;
  // Made by the first run().
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<CpuStream> stream_;
  std::unique_ptr<Worker> worker_;
};

}  // namespace zeepo
