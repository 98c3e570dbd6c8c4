#include "zeepo/base/printable.h"

#include <gtest/gtest.h>

#include <string>

namespace zeepo {
namespace {

TEST(Printable, SpellsOutWhatSteersATerminal) {
  EXPECT_EQ(printable("\x1b[2J"), "\\x1b[2J");
  EXPECT_EQ(printable("a\rb\a\x7f"), "a\\x0db\\x07\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\x9b2J");  // U+009B, what ESC [ is in one character
  EXPECT_EQ(printable(std::string("\0", 1)), "\\x00");
}

TEST(Printable, LeavesTextAsItIs) {
  for (const std::string text : {"", "two\nlines\tand a tab",
                                 "Gr\xc3\xbc\xc3\x9f"
                                 "e \xe2\x82\xac",
                                 "\xc2", "\xff\xc2"})
    EXPECT_EQ(printable(text), text);
}

}  // namespace
}  // namespace zeepo
