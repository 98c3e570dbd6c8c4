#include "zeepo/memory/arena_tier.h"

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

ArenaTier::ArenaTier(std::string name, std::size_t budget_bytes, Stream& stream)
    : Tier(std::move(name)), arena_(budget_bytes) {
  dispatch(stream, [&](auto& s) { memory_ = device_memory(s, this->name(), arena_.capacity()); });
}

Block ArenaTier::allocate(std::size_t bytes, Kind kind) {
  const auto offset = arena_.take(bytes);
  if (!offset)
    throw Error(
        "{} memory: {} more for {} do not fit in the budget of {}; held: {}. Raise --memory {}=, or lower "
        "--micro-batch or --seq-len",
        name(), format_size(static_cast<std::int64_t>(bytes)), name_of(kind),
        format_size(static_cast<std::int64_t>(arena_.capacity())), describe(current()), name());
  return lease(memory_.data() ? memory_.data() + *offset : nullptr, *offset, bytes, kind);
}

void ArenaTier::release(std::size_t offset, std::size_t bytes) noexcept { arena_.give_back(offset, bytes); }

}  // namespace zeepo
