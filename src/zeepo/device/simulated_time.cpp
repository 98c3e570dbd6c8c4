#include "zeepo/device/simulated_time.h"

#include <algorithm>

namespace zeepo {

double SimulatedRates::products(DType dtype) const {
  return dtype == DType::bf16 || dtype == DType::f16 ? products_16bit : products_fp32;
}

// Work is cut where something else comes between: a link carries pieces of both.
double Calendar::take(double now, double ready, double seconds) {
  std::erase_if(taken_, [&](const Taken& t) { return t.end <= now; });
  busy_ += seconds;
  double at = std::max(now, ready), left = seconds;
  std::size_t next = 0;
  while (next < taken_.size() && taken_[next].end <= at) ++next;
  const std::size_t first = next;
  const double begin = next < taken_.size() && taken_[next].begin <= at ? taken_[next].begin : at;
  for (; next < taken_.size(); ++next) {
    const double free = std::max(0.0, taken_[next].begin - at);
    if (free > left) break;
    left -= free;
    at = taken_[next].end;
  }
  const double end = at + left;
  if (seconds <= 0) return end;
  // All from `begin` to `end` is taken now: what lay between has been passed.
  const auto from = taken_.begin() + static_cast<std::ptrdiff_t>(first);
  const auto until = taken_.begin() + static_cast<std::ptrdiff_t>(next);
  taken_.insert(taken_.erase(from, until), Taken{begin, end});
  return end;
}

void SimulatedTime::compute(double seconds) {
  const double taken = seconds + rates_.kernel_seconds;
  computed_ = std::max(computed_, now_) + taken;
  compute_busy_ += taken;
  now_ = rates_.beside_host ? now_ + rates_.kernel_seconds : computed_;  // beside: what giving it out takes
}

void SimulatedTime::work_on_host(double seconds) {
  now_ = calendars_[static_cast<std::size_t>(Resource::host_step)].take(now_, now_, seconds);
  if (!rates_.beside_host) computed_ = std::max(computed_, now_);
}

void SimulatedTime::compute_after(double time) {
  computed_ = std::max(computed_, time);
  if (!rates_.beside_host) wait_until(time);
}

void SimulatedTime::wait_until(double time) { now_ = std::max(now_, time); }

double SimulatedTime::run(Lane lane, double ready, std::span<const Part> parts) {
  double& end = lanes_[static_cast<std::size_t>(lane)];
  end = std::max({end, ready, now_});
  for (const Part& part : parts)
    end = calendars_[static_cast<std::size_t>(part.resource)].take(now_, end, part.seconds);
  return end;
}

double SimulatedTime::run_pipelined(Lane lane, double ready, const Part& first, const Part& second, double piece) {
  double& end = lanes_[static_cast<std::size_t>(lane)];
  const double start = std::max({end, ready, now_});
  const auto take = [&](const Part& part, double from) {
    return calendars_[static_cast<std::size_t>(part.resource)].take(now_, from, part.seconds);
  };
  const double first_done = take(first, start), second_done = take(second, start + first.seconds * piece);
  end = std::max(first_done + second.seconds * piece, second_done);
  return end;
}

std::array<double, SimulatedTime::kResources> SimulatedTime::busy_seconds() const {
  std::array<double, kResources> busy{};
  for (std::size_t i = 0; i < kResources; ++i) busy[i] = calendars_[i].busy_seconds();
  busy[static_cast<std::size_t>(Resource::compute)] += compute_busy_;
  return busy;
}

const char* name_of(SimulatedTime::Resource resource) {
  switch (resource) {
    case SimulatedTime::Resource::compute: return "compute";
    case SimulatedTime::Resource::to_device: return "host link";
    case SimulatedTime::Resource::to_host: return "host link";
    case SimulatedTime::Resource::files: return "nvme";
    case SimulatedTime::Resource::host_step: return "host memory";
    case SimulatedTime::Resource::ranks: return "network";
  }
  return "";
}

}  // namespace zeepo
