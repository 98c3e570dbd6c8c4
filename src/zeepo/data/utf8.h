// UTF-8: what is valid, one character at a time, and bytes that may not be text at all.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace zeepo {

// The offset of the first byte that is not part of valid UTF-8, or text.size().
std::size_t valid_utf8_prefix(std::string_view text);

inline bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

// The first place from `at` on whose byte is not ASCII, or text.size().
std::size_t skip_ascii(std::string_view text, std::size_t at);

struct CodePoint {
  char32_t value;
  std::size_t bytes;
};
// The character at text[at]; the text must be valid there.
CodePoint code_point_at(std::string_view text, std::size_t at);
// The character that ends before text[end], end > 0.
CodePoint code_point_before(std::string_view text, std::size_t end);
void append_utf8(char32_t value, std::string& out);

enum class Rest { kept, replaced };
// Appends `bytes` to `out`, each maximal invalid part as one U+FFFD, and returns how many bytes were taken. A
// character that only lacks its last bytes is left for the next call (kept) or replaced too.
std::size_t append_lossy(std::string_view bytes, Rest rest, std::string& out);

}  // namespace zeepo
