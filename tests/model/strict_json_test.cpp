#include "zeepo/model/strict_json.h"

#include "tests/support/errors.h"

namespace zeepo {
namespace {

std::string refusal_of(const std::string& text) {
  return error_text([&] { parse_json_object(text, "file"); });
}

TEST(StrictJson, NamesWhatItRefuses) {
  EXPECT_TRUE(names(refusal_of("{"), "file: not JSON"));
  EXPECT_TRUE(names(refusal_of("{} {}"), "file: not JSON"));
  EXPECT_TRUE(names(refusal_of("[1]"), "file: holds array, must be a JSON object"));
  EXPECT_TRUE(names(refusal_of(R"({"a":{"b":1,"b":2}})"), "file: the key \"b\" is given twice"));
  EXPECT_EQ(parse_json_object(R"({"a":{"b":1},"c":{"b":[2]}})", "file").at("c").at("b").at(0), 2);
  const auto nested = [](int levels) {
    return R"({"a":)" + std::string(static_cast<std::size_t>(levels) - 1, '[') +
           std::string(static_cast<std::size_t>(levels) - 1, ']') + "}";
  };
  EXPECT_NO_THROW(parse_json_object(nested(kMaxJsonDepth), "file"));
  EXPECT_TRUE(names(refusal_of(nested(kMaxJsonDepth + 1)), "file: nested deeper than 64 levels"));
  EXPECT_TRUE(names(refusal_of(nested(1'000'000)), "file: nested deeper than 64 levels"));
}

// The header of a checkpoint has three entries for each weight. In a time that grows with the square this takes
// minutes.
TEST(StrictJson, ATableMayBeLong) {
  constexpr int kEntries = 200'000;
  std::string text = "{";
  for (int i = 0; i < kEntries; ++i)
    text += fmt::format(R"({}"weight.{}":{{"dtype":"F32","shape":[2]}})", i > 0 ? "," : "", i);
  EXPECT_EQ(parse_json_object(text + "}", "file").size(), std::size_t{kEntries});
}

}  // namespace
}  // namespace zeepo
