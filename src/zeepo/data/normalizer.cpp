#include "zeepo/data/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "zeepo/base/error.h"
#include "zeepo/data/json_value.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

constexpr std::size_t kPieceBytes = 64 * 1024;

struct Free {
  void operator()(utf8proc_uint8_t* memory) const noexcept { std::free(memory); }
};

// Text may be cut before these: they never combine with what stands in front of them. Ideographs and syllables are
// named so that text without a single Latin letter is cut too.
bool may_begin_piece(char32_t c) {
  return c < 0x300 || (c >= 0x3400 && c <= 0x9FFF) || (c >= 0xAC00 && c <= 0xD7A3) || (c >= 0x400 && c <= 0x482);
}

// The tokenizers library normalizes by Unicode 9: marks and compositions that came later are left as they stand.
struct Range {
  char32_t first, last;
};
constexpr Range kYoung[] = {
    {0x07FD, 0x07FD},   {0x0897, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0CF3, 0x0CF3},   {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x0ECE, 0x0ECE},   {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},
    {0xAB69, 0xAB69},   {0x105C0, 0x105F3}, {0x10781, 0x10785}, {0x10787, 0x107B0}, {0x107B2, 0x107BA},
    {0x10D24, 0x10D27}, {0x10D69, 0x10D6D}, {0x10EAB, 0x10EAC}, {0x10EFC, 0x10EFF}, {0x10F46, 0x10F50},
    {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x11241, 0x11241}, {0x1133B, 0x1133B}, {0x11380, 0x113E2},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E},
    {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99},
    {0x11D42, 0x11D42}, {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F00, 0x11F03}, {0x11F34, 0x11F42},
    {0x11F5A, 0x11F5A}, {0x13440, 0x13455}, {0x16100, 0x1612F}, {0x16D40, 0x16D6C}, {0x16FF0, 0x16FF1},
    {0x1CCD6, 0x1CCF9}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1E5EE, 0x1E5EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9},
};

bool is_young(char32_t c) {
  if (c < kYoung[0].first) return false;
  const auto* range = std::ranges::lower_bound(kYoung, c, {}, &Range::last);
  return range != std::end(kYoung) && c >= range->first;
}

// What needs no normal form: ASCII, but for its last character, which what follows may combine with.
std::size_t plain_end(std::string_view text, std::size_t begin) {
  const std::size_t end = skip_ascii(text, begin);
  return end == text.size() || end == begin ? end : end - 1;
}

// Where the text from `begin` may be cut, and is plain, long enough or young from there on.
std::size_t piece_end(std::string_view text, std::size_t begin) {
  std::size_t at = begin;
  while (at < text.size()) {
    const CodePoint character = code_point_at(text, at);
    if (at - begin >= kPieceBytes && may_begin_piece(character.value)) break;
    if (is_young(character.value)) break;
    if (character.bytes == 1 && at > begin && at + 1 < text.size() && is_ascii(text[at + 1])) break;
    at += character.bytes;
  }
  return at;
}

}  // namespace

Normalizer Normalizer::parse(const JsonValue& json) {
  Normalizer normalizer;
  normalizer.add(json);
  return normalizer;
}

void Normalizer::add(const JsonValue& json) {
  constexpr std::size_t kMost = 16;
  const std::string type = json.type();
  if (type == "Sequence") {
    for (const JsonValue& item : json.at("normalizers").items()) {
      if (item.type() == "Sequence") throw Error("{}: a Sequence within a Sequence is not supported", item.where());
      add(item);
    }
  } else if (type == "NFC") {
    forms_.push_back(Form::nfc);
  } else if (type == "NFD") {
    forms_.push_back(Form::nfd);
  } else if (type == "NFKC") {
    forms_.push_back(Form::nfkc);
  } else if (type == "NFKD") {
    forms_.push_back(Form::nfkd);
  } else {
    throw Error("{}: normalizer \"{}\" is not supported; NFC, NFD, NFKC, NFKD and Sequence are", json.where(), type);
  }
  if (forms_.size() > kMost) throw Error("{}: more than {} normalizers", json.where(), kMost);
}

std::string Normalizer::apply(Form form, std::string_view text) {
  int options = UTF8PROC_STABLE;
  options |= form == Form::nfc || form == Form::nfkc ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == Form::nfkc || form == Form::nfkd) options |= UTF8PROC_COMPAT;
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    std::size_t verbatim = plain_end(text, at) - at;
    if (verbatim == 0 && is_young(code_point_at(text, at).value)) verbatim = code_point_at(text, at).bytes;
    if (verbatim != 0) {
      out.append(text, at, verbatim);
      at += verbatim;
      continue;
    }
    const std::size_t end = piece_end(text, at);
    utf8proc_uint8_t* result = nullptr;
    const auto bytes =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + at,
                     static_cast<utf8proc_ssize_t>(end - at), &result, static_cast<utf8proc_option_t>(options));
    const std::unique_ptr<utf8proc_uint8_t, Free> owner(result);
    if (bytes < 0) throw Error("cannot normalize {} bytes of text: {}", end - at, utf8proc_errmsg(bytes));
    out.append(reinterpret_cast<const char*>(result), static_cast<std::size_t>(bytes));
    at = end;
  }
  return out;
}

std::optional<std::string> Normalizer::normalize(std::string_view text) const {
  if (forms_.empty() || skip_ascii(text, 0) == text.size()) return std::nullopt;
  std::string normal = apply(forms_.front(), text);
  for (std::size_t i = 1; i < forms_.size(); ++i) normal = apply(forms_[i], normal);
  return normal;
}

}  // namespace zeepo
