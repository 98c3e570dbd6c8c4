#include <utf8proc.h>

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/data/added_tokens.h"
#include "zeepo/data/regex.h"
#include "zeepo/data/stand_ins.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

// \s and \w of Rust's regex library.
bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  // Circled and squared letters are symbols, but alphabetic.
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189))
    return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(stand_in_of(c)))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return false;
  }
}

bool stands_alone(std::string_view text, TextRange range) {
  return (range.begin == 0 || !is_word(code_point_before(text, range.begin).value)) &&
         (range.end == text.size() || !is_word(code_point_at(text, range.end).value));
}

std::size_t without_spaces_before(std::string_view text, std::size_t end) {
  while (end > 0) {
    const CodePoint character = code_point_before(text, end);
    if (!is_space(character.value)) break;
    end -= character.bytes;
  }
  return end;
}

std::size_t without_spaces_after(std::string_view text, std::size_t begin) {
  while (begin < text.size()) {
    const CodePoint character = code_point_at(text, begin);
    if (!is_space(character.value)) break;
    begin += character.bytes;
  }
  return begin;
}

}  // namespace

void AddedTokenSearch::add(std::int32_t id, const AddedToken& token) {
  if (!token.form.empty()) entries_.push_back({token, id});
}

void AddedTokenSearch::prepare() {
  const auto form = [](const Entry& entry) -> const std::string& { return entry.token.form; };
  std::ranges::sort(entries_, {}, form);
  if (const auto twin = std::ranges::adjacent_find(entries_, {}, form); twin != entries_.end())
    throw Error("added_tokens: two tokens, {} and {}, are both found as {:?}", twin->id, (twin + 1)->id, form(*twin));
  first_.fill({0, 0});
  for (std::uint32_t i = 0; i < entries_.size(); ++i) {
    auto& range = first_[static_cast<unsigned char>(entries_[i].token.form[0])];
    if (range.second == 0) range.first = i;
    range.second = i + 1;
  }
}

// Narrows the sorted entries byte by byte; the first of those that begin like the text is the one that may end here.
const AddedTokenSearch::Entry* AddedTokenSearch::longest_at(std::string_view text, std::size_t at) const {
  auto [low, high] = first_[static_cast<unsigned char>(text[at])];
  const Entry* longest = nullptr;
  for (std::size_t depth = 1; low < high; ++depth) {
    if (entries_[low].token.form.size() == depth) longest = &entries_[low++];
    if (at + depth >= text.size()) break;
    const auto next = static_cast<unsigned char>(text[at + depth]);
    const auto byte_of = [depth](const Entry& entry) { return static_cast<unsigned char>(entry.token.form[depth]); };
    const auto first = entries_.begin() + low, last = entries_.begin() + high;
    low = static_cast<std::uint32_t>(std::ranges::lower_bound(first, last, next, {}, byte_of) - entries_.begin());
    high = static_cast<std::uint32_t>(std::ranges::upper_bound(first, last, next, {}, byte_of) - entries_.begin());
  }
  return longest;
}

void AddedTokenSearch::split(std::string_view text, const Part& part) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size() && !entries_.empty();) {
    const Entry* entry = longest_at(text, at);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    TextRange range{at, at + entry->token.form.size()};
    at = range.end;
    if (entry->token.single_word && !stands_alone(text, range)) continue;
    if (entry->token.lstrip) range.begin = std::max(without_spaces_before(text, range.begin), done);
    if (entry->token.rstrip) range.end = without_spaces_after(text, range.end);
    if (done < range.begin) part(text.substr(done, range.begin - done), std::nullopt);
    part(text.substr(range.begin, range.end - range.begin), entry->id);
    done = range.end;
  }
  if (done != text.size()) part(text.substr(done), std::nullopt);
}

}  // namespace zeepo
