// The time that a dry pass would take on a machine of given rates: the schedule is the engine's own, with clocks
// instead of links.
//
// Each thing that works beside the others has a clock: the rank's thread, the compute stream, each lane of copies. Work
// is given in the order of the program, and its end is known at once, since what it waits for was given before. What
// several lanes share (a link, the disks) has a calendar: work that is ready takes the first time that is free.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "zeepo/base/dtype.h"

namespace zeepo {

// Of one rank, all others of its machine as busy; a second.
struct SimulatedRates {
  double products_fp32 = 0, products_16bit = 0, products_fp8 = 0;  // floating-point operations
  double attention = 0;                                            // the same, of attention
  double device_memory = 0;                                        // bytes read and written
  double kernel_seconds = 0;                                       // of a kernel, beside its work
  bool beside_host = false;                                        // kernels run beside the rank's thread, as on a GPU
  double to_device = 0, to_host = 0;                               // bytes over the link
  double read = 0, write = 0;                                      // bytes of files
  double host_steps = 0;                                           // elements of optimizer state, by the host
  double within_node = 0, between_nodes = 0;                       // bytes that a rank sends
  double collective_seconds = 0;                                   // of one, beside its bytes

  double products(DType dtype) const;
};

// One thing at a time, each where it is ready and there is room: a later one may find a gap before an earlier one.
class Calendar {
 public:
  // When work that is ready at `ready` and takes so many seconds ends. `now`: nothing is ready before it any more.
  double take(double now, double ready, double seconds);
  double busy_seconds() const { return busy_; }

 private:
  struct Taken {
    double begin, end;
  };
  std::vector<Taken> taken_;  // apart, in order
  double busy_ = 0;
};

class SimulatedTime {
 public:
  // What can be the bound of a step.
  enum class Resource { compute, to_device, to_host, files, host_step, ranks };
  static constexpr std::size_t kResources = 6;
  // Each does its work in the order given.
  enum class Lane { up, down, up_out_of_band, down_out_of_band, snapshot, reader, writer, host_step, ranks };
  static constexpr std::size_t kLanes = 9;

  explicit SimulatedTime(const SimulatedRates& rates) : rates_(rates) {}

  const SimulatedRates& rates() const { return rates_; }
  // Of the rank's thread, and of what the compute stream has been given.
  double now() const { return now_; }
  double computed() const { return computed_; }

  // A kernel of the compute stream.
  void compute(double seconds);
  // Work of the rank's thread itself, on the host.
  void work_on_host(double seconds);
  // The compute stream goes on no earlier.
  void compute_after(double time);
  // The rank's thread goes on no earlier.
  void wait_until(double time);

  // When work of the lane ends that is ready at `ready`; it takes time of each resource, one after another.
  struct Part {
    Resource resource;
    double seconds;
  };
  double run(Lane lane, double ready, std::span<const Part> parts);
  // The same of two resources that work at once, the second one piece of the work behind: `piece` of all of it.
  double run_pipelined(Lane lane, double ready, const Part& first, const Part& second, double piece);

  // So far.
  std::array<double, kResources> busy_seconds() const;

 private:
  SimulatedRates rates_;
  double now_ = 0, computed_ = 0, compute_busy_ = 0;
  std::array<double, kLanes> lanes_{};
  std::array<Calendar, kResources> calendars_;
};

// "compute", "host link" (either way), "nvme", "host memory" (the host's step), "network".
const char* name_of(SimulatedTime::Resource resource);

}  // namespace zeepo
