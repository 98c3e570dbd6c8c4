#include "zeepo/data/utf8.h"

#include <gtest/gtest.h>

#include "zeepo/data/byte_alphabet.h"

namespace zeepo {
namespace {

std::string lossy(std::string_view bytes) {
  std::string out;
  EXPECT_EQ(append_lossy(bytes, Rest::replaced, out), bytes.size());
  return out;
}

TEST(Utf8, FindsTheFirstByteThatIsNotValid) {
  EXPECT_EQ(valid_utf8_prefix(""), 0u);
  const std::string_view text = "plain ASCII of some length é 世 😀";
  EXPECT_EQ(valid_utf8_prefix(text), text.size());
  EXPECT_EQ(valid_utf8_prefix("abcdefghij\x80"), 10u);
  EXPECT_EQ(valid_utf8_prefix("a\xC0\x80"), 1u);          // overlong
  EXPECT_EQ(valid_utf8_prefix("a\xED\xA0\x80"), 1u);      // surrogate
  EXPECT_EQ(valid_utf8_prefix("a\xF4\x90\x80\x80"), 1u);  // past U+10FFFF
  EXPECT_EQ(valid_utf8_prefix("a\xE4\xBD"), 1u);          // cut short
}

// The expected strings are those of Rust's String::from_utf8_lossy.
TEST(Utf8, OneReplacementForEachMaximalInvalidPart) {
  EXPECT_EQ(lossy("Hello \xF0\x90\x80World"), "Hello \uFFFDWorld");
  EXPECT_EQ(lossy("\xFF\xFE"), "\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xE0\x80\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(lossy("\xF1\x80\x41\xF1\x80\x80"), "\uFFFD\x41\uFFFD");
  EXPECT_EQ(lossy("ok"), "ok");
}

TEST(Utf8, EveryCharacterComesBack) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value >= 0xD800 && value < 0xE000) continue;
    std::string bytes;
    append_utf8(value, bytes);
    ASSERT_EQ(valid_utf8_prefix(bytes), bytes.size());
    ASSERT_EQ(code_point_at(bytes, 0).value, value);
    ASSERT_EQ(code_point_before(bytes, bytes.size()).bytes, bytes.size());
  }
}

TEST(ByteAlphabet, SpellsEveryByte) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(unspell_bytes(spell_bytes(all)), all);
  EXPECT_EQ(spell_bytes(" é\n"), "ĠÃ©Ċ");
  EXPECT_EQ(unspell_bytes("a b"), std::nullopt);
  EXPECT_EQ(unspell_bytes("世"), std::nullopt);
}

}  // namespace
}  // namespace zeepo
