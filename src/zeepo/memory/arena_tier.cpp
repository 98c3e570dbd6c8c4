#include "zeepo/memory/arena_tier.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "zeepo/base/error.h"
#include "zeepo/base/size.h"

namespace zeepo {

ArenaTier::ArenaTier(std::string name, std::size_t budget_bytes, Backing backing, std::size_t alignment)
    : Tier(std::move(name)), arena_(budget_bytes, alignment) {
  if (backing == Backing::none || arena_.capacity() == 0) return;
  void* memory =
      ::mmap(nullptr, arena_.capacity(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("{} memory: cannot reserve {}: {}; lower --memory", this->name(),
                format_size(static_cast<std::int64_t>(arena_.capacity())), std::strerror(errno));
  base_ = static_cast<std::byte*>(memory);
  // Huge pages halve the cost of large matrix products; where they are not to be had, ordinary pages do.
  (void)::madvise(memory, arena_.capacity(), MADV_HUGEPAGE);
}

ArenaTier::~ArenaTier() {
  if (base_) ::munmap(base_, arena_.capacity());
}

Block ArenaTier::allocate(std::size_t bytes, Kind kind) {
  const auto offset = arena_.take(bytes);
  if (!offset)
    throw Error(
        "{} memory: {} more for {} do not fit in the budget of {}; held: {}. Raise --memory {}=, or lower "
        "--micro-batch or --seq-len",
        name(), format_size(static_cast<std::int64_t>(bytes)), name_of(kind),
        format_size(static_cast<std::int64_t>(arena_.capacity())), describe(current()), name());
  return lease(base_ ? base_ + *offset : nullptr, *offset, bytes, kind);
}

void ArenaTier::release(std::size_t offset, std::size_t bytes) noexcept { arena_.give_back(offset, bytes); }

}  // namespace zeepo
