#include "zeepo/data/byte_alphabet.h"

#include <array>

#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Printable Latin-1 stands for itself; the other bytes follow from U+0100 on, in order.
constexpr auto kLetters = [] {
  std::array<char32_t, 256> letters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) letters[byte] = is_printable(byte) ? byte : next++;
  return letters;
}();

constexpr int kNoByte = -1;
constexpr auto kBytes = [] {
  std::array<int, 0x144> bytes{};
  bytes.fill(kNoByte);
  for (int byte = 0; byte < 256; ++byte) bytes[kLetters[static_cast<unsigned>(byte)]] = byte;
  return bytes;
}();

}  // namespace

std::string spell_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) append_utf8(kLetters[static_cast<unsigned char>(byte)], spelling);
  return spelling;
}

std::optional<std::string> unspell_bytes(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const CodePoint letter = code_point_at(spelling, at);
    if (letter.value >= kBytes.size() || kBytes[letter.value] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(kBytes[letter.value]));
    at += letter.bytes;
  }
  return bytes;
}

}  // namespace zeepo
