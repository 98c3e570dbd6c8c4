#include "zeepo/zero/collectives.h"

#include <chrono>

#include "zeepo/tensor/device.h"

namespace zeepo {

Collectives::Collectives(Communicator& communicator, Overlap overlap)
    : communicator_(communicator), overlap_(overlap), timeline_(Device::current().timeline) {
  if (!alone() && !Device::current().compute.dry()) worker_ = std::make_unique<Worker>();
}

Completion Collectives::run(std::function<void(CpuStream&)> job) {
  if (!worker_) return {};
  Device::current().compute.synchronize();  // what the job reads has been computed
  Completion completion = worker_->run([this, job = std::move(job)] { job(stream_); });
  if (overlap_ == Overlap::no) wait(completion);
  return completion;
}

Completion Collectives::all_gather(ConstView shard, View full, const Label& label, std::vector<Completion> after) {
  sent_.all_gather += sent_of(full.bytes(), size());
  return run([=, this](CpuStream& stream) mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(timeline_, TimelineRow::collectives, "all-gather", {label.what});
    communicator_.all_gather(stream, shard, full, label);
  });
}

Completion Collectives::reduce_scatter(ConstView full, View scratch, View shard, const Label& label) {
  sent_.reduce_scatter += sent_of(full.bytes(), size());
  return run([=, this](CpuStream& stream) {
    const Span span(timeline_, TimelineRow::collectives, "reduce-scatter", {label.what});
    communicator_.reduce_scatter(stream, full, scratch, shard, label);
  });
}

void Collectives::all_reduce(View x, const Label& label) {
  sent_.all_reduce += sent_of(2 * x.bytes(), size());
  Completion done = run([=, this](CpuStream& stream) {
    const Span span(timeline_, TimelineRow::collectives, "all-reduce", {label.what});
    communicator_.all_reduce(stream, x, label);
  });
  wait(done);
}

void Collectives::broadcast(View x, int root, const Label& label) {
  Completion done = run([=, this](CpuStream& stream) {
    const Span span(timeline_, TimelineRow::collectives, "broadcast", {label.what});
    communicator_.broadcast(stream, x, root, label);
  });
  wait(done);
}

void Collectives::wait(Completion& completion) {
  const Span span(timeline_, TimelineRow::compute, "wait for", {"the ranks"}, kLeastWait);
  const auto start = std::chrono::steady_clock::now();
  completion.wait();
  stalled_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace zeepo
