#include "zeepo/zero/host_stepper.h"

#include <algorithm>
#include <utility>

#include "zeepo/base/first_failure.h"

namespace zeepo {
namespace {

constexpr std::size_t kAlignment = 256;

}  // namespace

int host_step_threads(int threads) { return std::max(1, threads - std::max(1, threads / 8)); }

std::size_t HostStepper::slot_bytes(std::size_t grads_bytes, std::size_t param_bytes) {
  return Arena::aligned(grads_bytes, kAlignment) + param_bytes;
}

HostStepper::HostStepper(LowerTiers& tiers, std::size_t slot_bytes, int count, Timeline* timeline)
    : tiers_(tiers), timeline_(timeline), slots_(static_cast<std::size_t>(count)) {
  for (auto& slot : slots_) slot.memory = tiers.host().allocate(slot_bytes, Kind::working);
}

HostStepper::~HostStepper() {
  try {
    drain();
  } catch (...) {  // whoever needed the weights has been told
  }
}

HostStepper::Done HostStepper::run(Job job) {
  Stream& host = tiers_.host_stream();
  SimulatedTime* time = simulated_time(host);
  if (host.dry() && time == nullptr) return {};
  if (!worker_ && !host.dry()) {
    pool_ = std::make_unique<ThreadPool>(host_step_threads(static_cast<CpuStream&>(host).pool().threads()));
    stream_ = std::make_unique<CpuStream>(*pool_);
    worker_ = std::make_unique<Worker>();
  }
  Slot& slot = slots_[next_++ % slots_.size()];
  std::byte* memory = slot.memory.data();
  const View grads{memory, job.grads.dtype, job.grads.shape};
  View param = job.param;
  const bool brings_weights = param.shape.rank() > 0;
  if (brings_weights) param.data = memory + Arena::aligned(grads.bytes(), kAlignment);

  job.after.push_back(
      tiers_.download_out_of_band({{job.grads.data, memory, grads.bytes()}}, job.gradients, {std::move(slot.free)}));
  if (brings_weights)
    job.after.push_back(tiers_.download_out_of_band({{job.param.data, param.data, param.bytes()}}, job.parameters, {}));
  Done done;
  if (time != nullptr)
    done.stepped = simulated(*time, grads.elements(), job.after);
  else
    done.stepped =
        worker_->run([=, this, after = std::move(job.after), step = std::move(job.step), about = job.state]() mutable {
          for (auto& earlier : after) earlier.wait();
          const Span span(timeline_, TimelineRow::host_step, "step", about);
          step(*stream_, grads, param);
        });
  done.weights = done.stepped;
  if (brings_weights)
    done.weights =
        tiers_.upload_out_of_band({{param.data, job.param.data, param.bytes()}}, job.parameters, {done.stepped});
  slot.free = done.weights;
  return done;
}

Completion HostStepper::simulated(SimulatedTime& time, std::int64_t elements, const std::vector<Completion>& after) {
  double start = time.now();
  for (const Completion& earlier : after) start = std::max(start, earlier.simulated_end());
  const SimulatedTime::Part part{SimulatedTime::Resource::host_step,
                                 static_cast<double>(elements) / time.rates().host_steps};
  return Completion::at(time, time.run(SimulatedTime::Lane::host_step, start, {&part, 1}));
}

// Copies wait for steps and steps for copies; after a failure one kind may be done long before the other.
void HostStepper::drain() {
  FirstFailure failure;
  failure.outlast([&] { tiers_.drain(); });
  failure.outlast([&] {
    if (worker_) worker_->run([] {}).wait();
  });
  failure.outlast([&] { tiers_.drain(); });
  failure.rethrow();
}

}  // namespace zeepo
