// GPT-2's way to write bytes as printable characters: tokens in tokenizer.json are spelled in these 256 letters.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace zeepo {

// " caf\xC3\xA9" to "ĠcafÃ©".
std::string spell_bytes(std::string_view bytes);
// The way back; nothing when a character is not a letter of the alphabet. `spelling` is valid UTF-8.
std::optional<std::string> unspell_bytes(std::string_view spelling);

}  // namespace zeepo
