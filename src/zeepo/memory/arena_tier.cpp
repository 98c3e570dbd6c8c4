#include "zeepo/memory/arena_tier.h"

#include <optional>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {

ArenaTier::ArenaTier(std::string name, std::size_t budget_bytes, Backing backing, std::size_t alignment)
    : Tier(std::move(name)), arena_(budget_bytes, alignment) {
  if (backing == Backing::memory) memory_ = host_memory(this->name(), arena_.capacity());
}

ArenaTier::ArenaTier(std::string name, MemoryRange memory, std::size_t alignment)
    : Tier(std::move(name)), arena_(memory.bytes(), alignment), memory_(std::move(memory)) {}

ArenaTier::ArenaTier(std::string name, std::size_t budget_bytes, Stream& stream, Taken taken)
    : Tier(std::move(name)), arena_(budget_bytes) {
  dispatch(stream, [&](auto& s) {
    if (taken == Taken::as_asked)
      grows_ = std::make_unique<GrowingMemory>(make_mapped_memory(s), arena_.capacity());
    else
      memory_ = device_memory(s, this->name(), arena_.capacity());
  });
}

Block ArenaTier::allocate(std::size_t bytes, Kind kind) {
  const auto offset = bytes <= free_bytes() ? arena_.take(bytes) : std::nullopt;
  if (!offset) refuse(bytes, kind);
  if (grows_) {
    try {
      grows_->cover(arena_.high_water());
    } catch (...) {
      arena_.give_back(*offset, bytes);
      throw;
    }
  }
  return lease(data() ? data() + *offset : nullptr, *offset, bytes, kind);
}

Block ArenaTier::count(std::size_t bytes, Kind kind) {
  if (bytes > free_bytes()) refuse(bytes, kind);
  counted_ += bytes;
  return lease(nullptr, kElsewhere, bytes, kind);
}

void ArenaTier::refuse(std::size_t bytes, Kind kind) const {
  throw Error(
      "{} memory: {} more for {} do not fit in the budget of {}; held: {}. Raise --memory {}=, or lower "
      "--micro-batch or --seq-len",
      name(), format_size(static_cast<std::int64_t>(bytes)), name_of(kind),
      format_size(static_cast<std::int64_t>(arena_.capacity())), describe(current()), name());
}

void ArenaTier::release(std::size_t offset, std::size_t bytes) noexcept {
  if (offset == kElsewhere)
    counted_ -= bytes;
  else
    arena_.give_back(offset, bytes);
}

}  // namespace zeepo
