#include "zeepo/torch/slot_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {
namespace {

std::size_t whole_system_pages(std::size_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  return std::max<std::size_t>((bytes + page - 1) / page, 1) * page;
}

}  // namespace

SlotMemory::SlotMemory(const std::vector<std::size_t>& range_bytes, AbsentMemory absent) : absent_(absent) {
  if (range_bytes.empty()) return;
  file_ = memfd_create("zeepo parameters", MFD_CLOEXEC);
  if (file_ < 0) throw Error("parameters: no memory file: {}", std::strerror(errno));
  for (const std::size_t wanted : range_bytes) {
    Range range{.bytes = whole_system_pages(wanted)};
    slot_bytes_ = std::max(slot_bytes_, range.bytes);
    void* const at = mmap(nullptr, range.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
      throw Error("parameters: {} of addresses are not to be had: {}",
                  format_size(static_cast<std::int64_t>(range.bytes)), std::strerror(errno));
    range.begin = static_cast<std::byte*>(at);
    ranges_.push_back(range);
  }
}

SlotMemory::~SlotMemory() {
  for (const Range& range : ranges_) munmap(range.begin, range.bytes);
  if (file_ >= 0) close(file_);
}

std::size_t SlotMemory::free_slot(std::size_t preferred) {
  if (preferred != kNone && slots_[preferred].range == kNone) return preferred;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].range == kNone) return slot;
  if (ftruncate(file_, static_cast<off_t>((slots_.size() + 1) * slot_bytes_)) != 0)
    throw Error("parameters: {} more of memory are not to be had: {}",
                format_size(static_cast<std::int64_t>(slot_bytes_)), std::strerror(errno));
  slots_.emplace_back();
  return slots_.size() - 1;
}

void SlotMemory::bring(std::size_t number) {
  Range& range = ranges_[number];
  if (range.slot != kNone) return;
  const std::size_t slot = free_slot(range.mapped);
  if (slot != range.mapped) {
    void* const at = mmap(range.begin, range.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                          file_, static_cast<off_t>(slot * slot_bytes_));
    if (at == MAP_FAILED) throw Error("parameters: memory cannot be mapped: {}", std::strerror(errno));
  } else if (absent_ == AbsentMemory::guarded && mprotect(range.begin, range.bytes, PROT_READ | PROT_WRITE) != 0) {
    throw Error("parameters: memory cannot be opened: {}", std::strerror(errno));
  }
  range.slot = range.mapped = slot;
  slots_[slot].range = number;
}

void SlotMemory::give_back(std::size_t number) noexcept {
  Range& range = ranges_[number];
  if (range.slot == kNone) return;
  slots_[range.slot].range = kNone;
  range.slot = kNone;
  if (absent_ == AbsentMemory::guarded) mprotect(range.begin, range.bytes, PROT_NONE);
}

}  // namespace zeepo
