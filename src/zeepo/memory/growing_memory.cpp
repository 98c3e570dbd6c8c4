#include "zeepo/memory/growing_memory.h"

#include <algorithm>
#include <utility>

namespace zeepo {

GrowingMemory::GrowingMemory(std::unique_ptr<MappedMemory> memory, std::size_t budget_bytes)
    : memory_(std::move(memory)), budget_(memory_->whole(budget_bytes)), begin_(memory_->reserve(budget_)) {}

void GrowingMemory::cover(std::size_t bytes) {
  if (bytes <= taken_) return;
  const std::size_t wanted = memory_->whole(std::max(bytes - taken_, kStep));
  const std::size_t grown = std::min(wanted, budget_ - taken_);
  memory_->map(begin_ + taken_, grown, memory_->take(grown));
  taken_ += grown;
}

}  // namespace zeepo
