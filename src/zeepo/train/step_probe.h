// How fast optimizer state in host memory is stepped on this machine: by the host where it is, and through the device.
//
// Both are measured at once, as a run does them, since they share the host's memory; and on all ranks at once, since
// these share it too. All ranks call together. What is taken for it is given back before the call returns.
#pragma once

#include <cstdint>

#include "zeepo/comm/communicator.h"
#include "zeepo/device/stream.h"
#include "zeepo/optim/optimizer.h"

namespace zeepo {

struct StepRates {
  double link_bytes_per_second = 0;     // between host memory and the device: each way, both ways at once
  double host_elements_per_second = 0;  // stepped by the host meanwhile
};

// What is stepped.
struct StepWork {
  DType dtype = DType::f32;  // of the weights
  DType grads = DType::f32;
  OptimizerOptions optimizer = {};
  bool params_on_device = true;

  // Bytes of an element that cross the link: each way where the device steps it; towards the host, the busier way,
  // where the host does.
  double through_device() const;
  double to_host() const;
};

// Of host memory, that measuring takes for the time being.
std::int64_t probe_bytes(const StepWork& work);
// `compute` is the device's stream; the host steps on as many threads as a HostStepper takes of `threads`.
StepRates measure_step_rates(Communicator& communicator, Stream& compute, int threads, const StepWork& work);

// The part of the elements that the host must step so that it ends when the link does, where nothing else takes time.
// None where its gradients and weights are as many bytes as the state.
double balanced_share(const StepRates& rates, const StepWork& work);
// The same where compute hides most of it: steps have waited so long while the device stepped all `elements`. What is
// left of that when the host steps its part is as long as that part takes.
double host_share(const StepRates& rates, const StepWork& work, double waited_seconds, double elements);

}  // namespace zeepo
