// Which pages of the KV cache are free. It holds no memory: pages are numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace zeepo {

class PagePool {
 public:
  explicit PagePool(std::int64_t pages);

  // So many pages: those that follow each other where there is such a stretch (the shortest that is long enough), else
  // the lowest ones. Nothing when fewer are free.
  std::optional<std::vector<std::int32_t>> take(std::int64_t count);
  // Throws Error for a page that is free.
  void give_back(std::span<const std::int32_t> pages);

  std::int64_t pages() const { return static_cast<std::int64_t>(free_.size()); }
  std::int64_t free_pages() const { return free_pages_; }

 private:
  std::optional<std::size_t> stretch_of(std::size_t count) const;

  std::vector<bool> free_;
  std::int64_t free_pages_;
};

}  // namespace zeepo
