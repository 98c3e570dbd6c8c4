#include "zeepo/data/word_cache.h"

#include <cstring>

namespace zeepo {
namespace {

constexpr std::size_t kFirstEntries = 1024;
constexpr std::size_t kMostEntries = std::size_t{1} << 19;
constexpr std::size_t kLongestWord = 128;

}  // namespace

WordCache::WordCache() : entries_(kFirstEntries) {}

std::uint64_t WordCache::hash_of(std::string_view word) {
  constexpr std::uint64_t kFactor = 0x9fb21c651e98df25u;
  std::uint64_t hash = word.size() * 0x9e3779b97f4a7c15u;
  const auto take = [&](std::uint64_t value) {
    hash = (hash ^ value) * kFactor;
    hash ^= hash >> 29;
  };
  std::uint64_t value = 0;
  while (word.size() >= sizeof value) {
    std::memcpy(&value, word.data(), sizeof value);
    take(value);
    word.remove_prefix(sizeof value);
  }
  value = 0;
  std::memcpy(&value, word.data(), word.size());
  take(value);
  return hash ^ hash >> 32;
}

std::span<const std::int32_t> WordCache::find(std::string_view word) const {
  const std::uint64_t hash = hash_of(word);
  const std::size_t mask = entries_.size() - 1;
  for (std::size_t slot = hash & mask; entries_[slot].word_bytes != 0; slot = (slot + 1) & mask) {
    const Entry& entry = entries_[slot];
    if (entry.hash == hash && entry.word_bytes == word.size() &&
        std::memcmp(words_.data() + entry.word, word.data(), word.size()) == 0)
      return {ids_.data() + entry.ids, entry.id_count};
  }
  return {};
}

void WordCache::insert(std::string_view word, std::span<const std::int32_t> ids) {
  if (word.empty() || ids.empty() || word.size() > kLongestWord) return;
  if (2 * (used_ + 1) > entries_.size()) {
    if (entries_.size() < kMostEntries) {
      grow();
    } else {
      clear();
    }
  }
  const std::uint64_t hash = hash_of(word);
  std::size_t slot = hash & (entries_.size() - 1);
  while (entries_[slot].word_bytes != 0) slot = (slot + 1) & (entries_.size() - 1);
  entries_[slot] = {hash, static_cast<std::uint32_t>(words_.size()), static_cast<std::uint32_t>(ids_.size()),
                    static_cast<std::uint16_t>(word.size()), static_cast<std::uint16_t>(ids.size())};
  words_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
  ++used_;
}

void WordCache::clear() {
  entries_.assign(entries_.size(), Entry{});
  words_.clear();
  ids_.clear();
  used_ = 0;
}

void WordCache::grow() {
  std::vector<Entry> old(entries_.size() * 4);
  old.swap(entries_);
  for (const Entry& entry : old) {
    if (entry.word_bytes == 0) continue;
    std::size_t slot = entry.hash & (entries_.size() - 1);
    while (entries_[slot].word_bytes != 0) slot = (slot + 1) & (entries_.size() - 1);
    entries_[slot] = entry;
  }
}

}  // namespace zeepo
