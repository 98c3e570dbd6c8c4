#include "zeepo/torch/slot_memory.h"

namespace zeepo {

SlotMemory::SlotMemory(const std::vector<std::size_t>& range_bytes, AbsentMemory absent, Stream& stream)
    : absent_(absent), stream_(stream) {
  dispatch(stream, [&](auto& s) { memory_ = make_mapped_memory(s); });
  for (const std::size_t wanted : range_bytes) {
    const std::size_t bytes = memory_->whole(wanted);
    ranges_.push_back({.begin = memory_->reserve(bytes), .bytes = bytes});
  }
}

std::size_t SlotMemory::free_slot(const Range& range) {
  if (range.mapped != kNone && slots_[range.mapped].range == kNone) return range.mapped;
  std::size_t best = kNone;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.range != kNone || slot.bytes < range.bytes || slot.bytes / 2 > range.bytes) continue;
    if (best == kNone || slot.bytes < slots_[best].bytes) best = i;
  }
  if (best != kNone) return best;
  slots_.push_back({.piece = memory_->take(range.bytes), .bytes = range.bytes});
  return slots_.size() - 1;
}

void SlotMemory::bring(std::size_t number) {
  Range& range = ranges_[number];
  if (range.slot != kNone) return;
  const std::size_t slot = free_slot(range);
  if (slot != range.mapped) {
    if (range.mapped != kNone) stream_.synchronize();
    memory_->map(range.begin, range.bytes, slots_[slot].piece);
  }
  range.slot = range.mapped = slot;
  slots_[slot].range = number;
}

void SlotMemory::give_back(std::size_t number) noexcept {
  Range& range = ranges_[number];
  if (range.slot == kNone) return;
  slots_[range.slot].range = kNone;
  range.slot = kNone;
  if (absent_ == AbsentMemory::stale) return;
  try {
    stream_.synchronize();
  } catch (...) {  // the next call on the stream throws the same
  }
  memory_->unmap(range.begin, range.bytes);
  range.mapped = kNone;
}

}  // namespace zeepo
