#include "zeepo/data/utf8.h"

#include <cstdint>
#include <cstring>

namespace zeepo {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Sequence {
  std::size_t bytes;  // of the whole character when valid, else of its longest valid beginning (at least 1)
  enum { valid, invalid, cut_short } state;
};

// The table of well-formed sequences of the Unicode standard (3.9, D92).
Sequence sequence_at(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  if (lead < 0x80) return {1, Sequence::valid};
  const std::size_t length = lead >= 0xC2 && lead <= 0xDF   ? 2
                             : lead >= 0xE0 && lead <= 0xEF ? 3
                             : lead >= 0xF0 && lead <= 0xF4 ? 4
                                                            : 0;
  if (length == 0) return {1, Sequence::invalid};
  unsigned char low = 0x80, high = 0xBF;
  if (lead == 0xE0) low = 0xA0;
  if (lead == 0xED) high = 0x9F;
  if (lead == 0xF0) low = 0x90;
  if (lead == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < length; ++i) {
    if (at + i == text.size()) return {i, Sequence::cut_short};
    const auto next = static_cast<unsigned char>(text[at + i]);
    if (next < low || next > high) return {i, Sequence::invalid};
    low = 0x80;
    high = 0xBF;
  }
  return {length, Sequence::valid};
}

}  // namespace

std::size_t skip_ascii(std::string_view text, std::size_t at) {
  std::uint64_t word = 0;
  while (at + sizeof word <= text.size()) {
    std::memcpy(&word, text.data() + at, sizeof word);
    if ((word & 0x8080808080808080u) != 0) break;
    at += sizeof word;
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

std::size_t valid_utf8_prefix(std::string_view text) {
  for (std::size_t at = 0;;) {
    at = skip_ascii(text, at);
    if (at == text.size()) return at;
    const Sequence sequence = sequence_at(text, at);
    if (sequence.state != Sequence::valid) return at;
    at += sequence.bytes;
  }
}

CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return code_point_at(text, at);
}

void append_utf8(char32_t value, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<unsigned char>(byte))); };
  if (value < 0x80) {
    put(value);
  } else if (value < 0x800) {
    put(0xC0 | value >> 6);
    put(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    put(0xE0 | value >> 12);
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  } else {
    put(0xF0 | value >> 18);
    put(0x80 | (value >> 12 & 0x3F));
    put(0x80 | (value >> 6 & 0x3F));
    put(0x80 | (value & 0x3F));
  }
}

std::size_t append_lossy(std::string_view bytes, Rest rest, std::string& out) {
  for (std::size_t at = 0;;) {
    const std::size_t begin = at;
    at = begin + valid_utf8_prefix(bytes.substr(begin));
    out.append(bytes, begin, at - begin);
    if (at == bytes.size()) return at;
    const Sequence sequence = sequence_at(bytes, at);
    if (sequence.state == Sequence::cut_short && rest == Rest::kept) return at;
    out += kReplacement;
    at += sequence.bytes;
  }
}

}  // namespace zeepo
