#include "zeepo/zero/state_slots.h"

#include <utility>

#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

std::byte* at(const Block& memory, std::size_t offset) { return memory.data() ? memory.data() + offset : nullptr; }

}  // namespace

StateSlots::StateSlots(LowerTiers& tiers, StepSide side, std::size_t slot_bytes, int count)
    : tiers_(tiers), side_(side), slots_(static_cast<std::size_t>(count)), reach_(count) {
  Tier& memory = side == StepSide::device ? Device::current().memory : tiers.host();
  for (auto& slot : slots_) slot.memory = memory.allocate(slot_bytes, Kind::working);
}

StateSlots::~StateSlots() {
  try {
    drain();
  } catch (...) {  // whoever needed the bytes has been told
  }
}

std::vector<const Block*> StateSlots::buffers() const {
  std::vector<const Block*> blocks;
  for (const auto& slot : slots_) blocks.push_back(&slot.memory);
  return blocks;
}

void StateSlots::read(std::int64_t n, const Part& part, const Completion& after) {
  Slot& to = slot(n);
  auto waits = std::exchange(to.leaving, {});
  waits.push_back(after);
  to.from = tiers_.nvme() && part.block->in(*tiers_.nvme()) ? Place::nvme : Place::host;
  // Reads are done in order: the last one's completion stands for all.
  std::byte* memory = at(to.memory, part.at);
  to.reading = side_ == StepSide::device
                   ? tiers_.to_device(*part.block, part.offset, memory, part.bytes, part.about, std::move(waits))
                   : tiers_.read(*part.block, part.offset, memory, part.bytes, part.about, std::move(waits));
}

std::byte* StateSlots::use(std::int64_t n) {
  Slot& used = slot(n);
  tiers_.wait(used.reading, used.from);
  return used.memory.data();
}

Completion StateSlots::write(std::int64_t n, const Part& part) {
  Slot& from = slot(n);
  const std::byte* memory = at(from.memory, part.at);
  Completion done = side_ == StepSide::device
                        ? tiers_.from_device(memory, *part.block, part.offset, part.bytes, part.about)
                        : tiers_.write(memory, *part.block, part.offset, part.bytes, part.about);
  from.leaving.push_back(done);
  return done;
}

void StateSlots::reserve_until(std::int64_t n, Completion until) { slot(n).leaving.push_back(std::move(until)); }

void StateSlots::drain() {
  for (auto& slot : slots_) {
    slot.reading.wait();
    for (auto& leaving : slot.leaving) leaving.wait();
    slot.leaving.clear();
  }
}

}  // namespace zeepo
