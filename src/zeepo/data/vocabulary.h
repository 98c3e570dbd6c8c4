// The tokens of a byte-level model: spelling to id, and id to the bytes it stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace zeepo {

class JsonValue;

// Ids are below this, so that what is sized by them stays reasonable whatever a file says.
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;

class Vocabulary {
 public:
  Vocabulary() = default;
  Vocabulary(Vocabulary&&) = default;
  Vocabulary& operator=(Vocabulary&&) = default;

  // An object of spelling: id. Throws Error for ids that are negative, too large or given twice.
  static Vocabulary parse(const JsonValue& json);

  std::optional<std::int32_t> find(std::string_view spelling) const;
  // The spelling of `id`, null where there is no such token.
  const std::string* spelling(std::int32_t id) const;
  std::size_t size() const { return ids_.size(); }
  std::int32_t largest_id() const { return largest_id_; }  // -1 when empty

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::int32_t, const std::string*> spellings_;  // into ids_, whose keys never move
  std::int32_t largest_id_ = -1;
};

}  // namespace zeepo
