// Pieces of text that were encoded before, and their ids. Holds the words of a language many times over; when it is
// full it starts anew, so that its memory is bounded and what it gives never depends on what it holds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace zeepo {

class WordCache {
 public:
  WordCache();

  // The ids of `word`, empty when it is not here.
  std::span<const std::int32_t> find(std::string_view word) const;
  // Words that are too long to come again are not kept.
  void insert(std::string_view word, std::span<const std::int32_t> ids);

 private:
  struct Entry {
    std::uint64_t hash = 0;
    std::uint32_t word = 0, ids = 0;  // where they begin
    std::uint16_t word_bytes = 0;     // 0: no entry
    std::uint16_t id_count = 0;
  };
  static std::uint64_t hash_of(std::string_view word);
  void clear();
  void grow();

  std::vector<Entry> entries_;  // a power of two, at most half full
  std::size_t used_ = 0;
  std::string words_;
  std::vector<std::int32_t> ids_;
};

}  // namespace zeepo
