#include "zeepo/infer/page_pool.h"

#include "zeepo/base/error.h"

namespace zeepo {

PagePool::PagePool(std::int64_t pages) : free_(static_cast<std::size_t>(pages), true), free_pages_(pages) {}

std::optional<std::size_t> PagePool::stretch_of(std::size_t count) const {
  std::optional<std::size_t> best;
  std::size_t best_length = free_.size() + 1;
  for (std::size_t begin = 0; begin < free_.size();) {
    std::size_t end = begin;
    while (end < free_.size() && free_[end]) ++end;
    if (end - begin >= count && end - begin < best_length) {
      best = begin;
      best_length = end - begin;
    }
    begin = end + 1;
  }
  return best;
}

std::optional<std::vector<std::int32_t>> PagePool::take(std::int64_t count) {
  if (count > free_pages_) return std::nullopt;
  std::vector<std::int32_t> taken;
  const auto wanted = static_cast<std::size_t>(count);
  for (std::size_t page = stretch_of(wanted).value_or(0); taken.size() < wanted; ++page) {
    if (!free_[page]) continue;
    free_[page] = false;
    taken.push_back(static_cast<std::int32_t>(page));
  }
  free_pages_ -= count;
  return taken;
}

void PagePool::give_back(std::span<const std::int32_t> pages) {
  for (const std::int32_t page : pages) {
    const auto at = static_cast<std::size_t>(page);
    if (at >= free_.size() || free_[at]) throw Error("pages: page {} given back, but is not in use", page);
    free_[at] = true;
    ++free_pages_;
  }
}

}  // namespace zeepo
