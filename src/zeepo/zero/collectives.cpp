#include "zeepo/zero/collectives.h"

#include <chrono>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Collectives::Collectives(Communicator& communicator, Overlap overlap)
    : communicator_(communicator), overlap_(overlap), timeline_(Device::current().timeline) {
  if (alone()) return;
  const Device& device = Device::current();
  const bool staged = device.compute.plays() == Backend::cuda && communicator.on_device() == nullptr;
  if (staged) {
    if (!device.lower) throw Error("engine: ranks on a GPU meet in host memory; make a Session with some");
    staging_ = device.lower->host().allocate(kStagingBytes, Kind::working);
  }
  if (device.compute.dry()) return;
  if (communicator.on_device() != nullptr) {
    ranks_ = communicator.on_device();
  } else {
    const auto staging = staged ? std::span(staging_.data(), staging_.bytes()) : std::span<std::byte>();
    dispatch(device.compute, [&](auto& s) { through_host_ = through_host(s, communicator, staging); });
    ranks_ = through_host_.get();
  }
  worker_ = std::make_unique<Worker>();
}

Collecting Collectives::run(std::function<Point(const Point&)> job) {
  if (!worker_) return {};
  Point start;  // what the job reads has been computed then
  dispatch(Device::current().compute, [&](auto& s) { start = point_of(s); });
  Collecting collecting{.given = {}, .done = std::make_shared<Point>()};
  collecting.given =
      worker_->run([job = std::move(job), start = std::move(start), done = collecting.done] { *done = job(start); });
  if (overlap_ == Overlap::no) wait(collecting);
  return collecting;
}

Collecting Collectives::all_gather(ConstView shard, View full, const Label& label, std::vector<Completion> after) {
  sent_.all_gather += sent_of(full.bytes(), size());
  return run([=, this](const Point& start) mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(timeline_, TimelineRow::collectives, "all-gather", {label.what});
    return ranks_->all_gather(start, shard, full, label);
  });
}

Collecting Collectives::reduce_scatter(ConstView full, View scratch, View shard, const Label& label, const SumInto& how,
                                       std::vector<Completion> after) {
  sent_.reduce_scatter += sent_of(full.bytes(), size());
  return run([=, this](const Point& start) mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(timeline_, TimelineRow::collectives, "reduce-scatter", {label.what});
    return ranks_->reduce_scatter(start, full, scratch, shard, label, how);
  });
}

void Collectives::all_reduce(View x, const Label& label) {
  sent_.all_reduce += sent_of(2 * x.bytes(), size());
  Collecting done = run([=, this](const Point& start) {
    const Span span(timeline_, TimelineRow::collectives, "all-reduce", {label.what});
    return ranks_->all_reduce(start, x, label);
  });
  wait(done);
}

void Collectives::broadcast(View x, int root, const Label& label) {
  Collecting done = run([=, this](const Point& start) {
    const Span span(timeline_, TimelineRow::collectives, "broadcast", {label.what});
    return ranks_->broadcast(start, x, root, label);
  });
  wait(done);
}

void Collectives::wait(Collecting& collecting) {
  const Span span(timeline_, TimelineRow::compute, "wait for", {"the ranks"}, kLeastWait);
  const auto start = std::chrono::steady_clock::now();
  collecting.given.wait();
  if (const auto done = std::exchange(collecting.done, nullptr))
    dispatch(Device::current().compute, [&](auto& s) { start_after(s, *done); });
  stalled_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Collectives::check() const {
  if (ranks_ != nullptr) ranks_->check();
}

}  // namespace zeepo
