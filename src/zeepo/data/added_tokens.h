// The "added_tokens" of tokenizer.json: tokens that are found in the text as they stand, before anything else happens.
//
// Those with "normalized": false are looked for in the text itself, the others in its normal form, each by the longest
// token at the leftmost place. Follows the tokenizers library in every flag.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "zeepo/data/normalizer.h"
#include "zeepo/data/vocabulary.h"

namespace zeepo {

class JsonValue;

struct AddedToken {
  std::string content;
  std::string form;  // what is looked for: the content, or its normal form
  bool single_word = false, lstrip = false, rstrip = false, normalized = false;
};

// Some of the added tokens, laid out for search.
class AddedTokenSearch {
 public:
  using Part = std::function<void(std::string_view text, std::optional<std::int32_t> id)>;

  void add(std::int32_t id, const AddedToken& token);
  // Throws Error when two tokens have one form. Call once, after the last add().
  void prepare();
  // Calls part with the stretches of `text` in order: added tokens with their id, and what lies between them.
  void split(std::string_view text, const Part& part) const;

 private:
  struct Entry {
    AddedToken token;
    std::int32_t id;
  };
  const Entry* longest_at(std::string_view text, std::size_t at) const;

  std::vector<Entry> entries_;                                        // by form
  std::array<std::pair<std::uint32_t, std::uint32_t>, 256> first_{};  // entries with this first byte
};

class AddedTokens {
 public:
  AddedTokens() = default;
  // Throws Error when a token's id is not the one that the tokenizers library would give it.
  static AddedTokens parse(const JsonValue& json, const Vocabulary& vocabulary, const Normalizer& normalizer);

  std::optional<std::int32_t> find(std::string_view content) const;
  // The text of token `id` as a decoder sees it, null where it is not an added token.
  const std::string* text(std::int32_t id) const;
  bool is_special(std::string_view text) const { return special_.contains(text); }
  std::int32_t largest_id() const { return by_id_.empty() ? -1 : by_id_.rbegin()->first; }

  const AddedTokenSearch& in_text() const { return in_text_; }
  const AddedTokenSearch& in_normal_form() const { return in_normal_form_; }

 private:
  std::map<std::string, std::int32_t, std::less<>> ids_;
  std::map<std::int32_t, AddedToken> by_id_;
  std::set<std::string, std::less<>> special_;
  AddedTokenSearch in_text_, in_normal_form_;
};

}  // namespace zeepo
