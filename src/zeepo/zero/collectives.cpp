#include "zeepo/zero/collectives.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/tensor/device.h"

namespace zeepo {

Collectives::Collectives(Communicator& communicator, Overlap overlap, const WireOptions& wire)
    : communicator_(communicator),
      overlap_(overlap),
      timeline_(Device::current().timeline),
      messages_(communicator, wire) {
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

// NCCL's are queued at once; through host memory the rank's thread waits for their end.
PendingCollective Collectives::simulated(By by, const SentBytes& sent, const std::vector<Completion>& after) {
  SimulatedTime* time = simulated_time(Device::current().compute);
  if (time == nullptr || alone()) return {};
  double start = time->computed();
  for (const Completion& earlier : after) start = std::max(start, earlier.simulated_end());
  const SimulatedRates& rates = time->rates();
  // Rings enter each node once: a rank sends its part of the node's.
  const bool on_device = communicator_.on_device() != nullptr && by == By::device;
  const bool rings = on_device && messages_.nodes().matter();
  const double all = static_cast<double>(sent.all);
  const double between = rings ? all / communicator_.local_size() : static_cast<double>(sent.between_nodes);
  const double within = rings ? all : all - between;
  const SimulatedTime::Part part{
      SimulatedTime::Resource::ranks,
      rates.collective_seconds + std::max(within / rates.within_node, between / rates.between_nodes)};
  const double end = time->run(SimulatedTime::Lane::ranks, start, {&part, 1});
  PendingCollective pending{.given = {}, .done = std::make_shared<Point>(Point::at(end))};
  if (!on_device) pending.given = Completion::at(*time, end);
  if (overlap_ == Overlap::no) wait(pending);
  return pending;
}

PendingCollective Collectives::run(By by, const SentBytes& sent, const std::vector<Completion>& after,
                                   std::function<Point(const Point&)> job) {
  if (!worker_) return simulated(by, sent, after);
  Point start;  // what the job reads has been computed then
  dispatch(Device::current().compute, [&](auto& s) { start = point_of(s); });
  PendingCollective pending{.given = {}, .done = std::make_shared<Point>()};
  pending.given =
      worker_->run([job = std::move(job), start = std::move(start), done = pending.done] { *done = job(start); });
  if (overlap_ == Overlap::no) wait(pending);
  return pending;
}

// Of a collective that sends every other rank the same amount.
SentBytes Collectives::sent_to_all(std::size_t bytes) const {
  const std::int64_t sent = sent_of(bytes, size());
  if (size() == 1) return {sent, 0};
  const auto elsewhere = size() - static_cast<std::int64_t>(messages_.nodes().peers_of(rank()).size());
  return {sent, sent * elsewhere / (size() - 1)};
}

PendingCollective Collectives::all_gather(ConstView shard, View full, const Label& label, std::vector<Completion> after,
                                          const GatherWire& wire) {
  const By by = messages_.carries(wire) ? By::messages : By::device;
  const SentBytes sent =
      by == By::messages ? messages_.sent_by_gather(wire, full.dtype, shard.elements()) : sent_to_all(full.bytes());
  sent_.all_gather += sent.all;
  sent_.between_nodes += sent.between_nodes;
  return run(by, sent, after, [=, this](const Point& start) mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(timeline_, TimelineRow::collectives, "all-gather", {label.what});
    if (by == By::device) return ranks_->all_gather(start, shard, full, label);
    messages_.gather(start, wire, shard, full, label);
    return Point{};
  });
}

PendingCollective Collectives::reduce_coded(WireType type, ConstView full, View error, View shard, const Label& label,
                                            const SumInto& how, std::vector<Completion> after) {
  const SentBytes sent = messages_.sent_by_reduce(type, full.dtype, shard.elements());
  sent_.reduce_scatter += sent.all;
  sent_.between_nodes += sent.between_nodes;
  return run(By::messages, sent, after, [=, this](const Point& start) mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(timeline_, TimelineRow::collectives, "reduce-scatter", {label.what});
    messages_.reduce(start, type, full, shard, error, label, how);
    return Point{};
  });
}

PendingCollective Collectives::reduce_scatter(ConstView full, View scratch, View shard, const Label& label,
                                              const SumInto& how, std::vector<Completion> after) {
  const SentBytes sent = sent_to_all(full.bytes());
  sent_.reduce_scatter += sent.all;
  sent_.between_nodes += sent.between_nodes;
  return run(By::device, sent, after, [=, this](const Point& start) mutable {
    for (auto& earlier : after) earlier.wait();
    const Span span(timeline_, TimelineRow::collectives, "reduce-scatter", {label.what});
    return ranks_->reduce_scatter(start, full, scratch, shard, label, how);
  });
}

void Collectives::all_reduce(View x, const Label& label) {
  const SentBytes sent = sent_to_all(2 * x.bytes());
  sent_.all_reduce += sent.all;
  sent_.between_nodes += sent.between_nodes;
  PendingCollective done = run(By::device, sent, {}, [=, this](const Point& start) {
    const Span span(timeline_, TimelineRow::collectives, "all-reduce", {label.what});
    return ranks_->all_reduce(start, x, label);
  });
  wait(done);
}

void Collectives::broadcast(View x, int root, const Label& label) {
  PendingCollective done = run(By::device, sent_to_all(x.bytes()), {}, [=, this](const Point& start) {
    const Span span(timeline_, TimelineRow::collectives, "broadcast", {label.what});
    return ranks_->broadcast(start, x, root, label);
  });
  wait(done);
}

void Collectives::wait(PendingCollective& pending) {
  const Span span(timeline_, TimelineRow::compute, "wait for", {"the ranks"}, kLeastWait);
  if (SimulatedTime* time = simulated_time(Device::current().compute)) {
    const double before = std::max(time->now(), time->computed());
    pending.given.wait();
    if (const auto done = std::exchange(pending.done, nullptr)) time->compute_after(done->simulated_time());
    stalled_seconds_ += std::max(time->now(), time->computed()) - before;
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  pending.given.wait();
  if (const auto done = std::exchange(pending.done, nullptr))
    dispatch(Device::current().compute, [&](auto& s) { start_after(s, *done); });
  stalled_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void Collectives::check() const {
  if (ranks_ != nullptr) ranks_->check();
}

}  // namespace zeepo
