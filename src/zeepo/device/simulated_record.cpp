#include "zeepo/device/simulated_record.h"

namespace zeepo {
namespace {

thread_local SimulatedRecord* living = nullptr;

}  // namespace

SimulatedRecord::SimulatedRecord() { living = this; }

SimulatedRecord::~SimulatedRecord() { living = nullptr; }

SimulatedRecord::Stretches* SimulatedRecord::current(SimulatedTime::Resource resource) {
  return living == nullptr ? nullptr : &living->all_[static_cast<std::size_t>(resource)];
}

}  // namespace zeepo
