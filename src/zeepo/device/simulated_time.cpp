#include "zeepo/device/simulated_time.h"

#include <algorithm>

#include "zeepo/device/simulated_record.h"

namespace zeepo {
namespace {

using Resource = SimulatedTime::Resource;

// Where what a calendar takes is written down; null: nowhere.
thread_local SimulatedRecord::Stretches* kept = nullptr;

void keep(double begin, double end) {
  if (kept != nullptr && end > begin) kept->push_back({begin, end});
}

double take(std::array<Calendar, SimulatedTime::kResources>& calendars, double now, double ready, Resource resource,
            double seconds) {
  kept = SimulatedRecord::current(resource);
  return calendars[static_cast<std::size_t>(resource)].take(now, ready, seconds);
}

}  // namespace

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
    keep(at, at + free);
    left -= free;
    at = taken_[next].end;
  }
  const double end = at + left;
  if (seconds <= 0) return end;
  keep(at, end);
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
  if (auto* kernels = SimulatedRecord::current(Resource::compute)) kernels->push_back({computed_ - taken, computed_});
  now_ = rates_.beside_host ? now_ + rates_.kernel_seconds : computed_;  // beside: what giving it out takes
}

void SimulatedTime::work_on_host(double seconds) {
  now_ = take(calendars_, now_, now_, Resource::host_step, seconds);
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
  for (const Part& part : parts) end = take(calendars_, now_, end, part.resource, part.seconds);
  return end;
}

double SimulatedTime::run_pipelined(Lane lane, double ready, const Part& first, const Part& second, double piece) {
  double& end = lanes_[static_cast<std::size_t>(lane)];
  const double start = std::max({end, ready, now_});
  const double first_done = take(calendars_, now_, start, first.resource, first.seconds);
  const double second_done = take(calendars_, now_, start + first.seconds * piece, second.resource, second.seconds);
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
