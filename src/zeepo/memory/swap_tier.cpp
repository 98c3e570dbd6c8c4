#include "zeepo/memory/swap_tier.h"

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {

SwapTier::SwapTier(std::string name, std::size_t budget_bytes, SwapFile* file)
    : Tier(std::move(name)), arena_(budget_bytes, kPageBytes), file_(file) {}

Block SwapTier::allocate(std::size_t bytes, Kind kind) {
  const auto offset = arena_.take(bytes);
  if (!offset)
    throw Error("{}: {} more for {} do not fit in the {} allocated for files; held: {}", name(),
                format_size(static_cast<std::int64_t>(bytes)), name_of(kind),
                format_size(static_cast<std::int64_t>(arena_.capacity())), describe(current()));
  return lease(nullptr, *offset, bytes, kind);
}

void SwapTier::release(std::size_t offset, std::size_t bytes) noexcept { arena_.give_back(offset, bytes); }

}  // namespace zeepo
