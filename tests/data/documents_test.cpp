#include "zeepo/data/documents.h"

#include <vector>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  while (const auto line = reader.next()) lines.emplace_back(*line);
  EXPECT_EQ(reader.number(), static_cast<std::int64_t>(lines.size()));
  return lines;
}

TEST(LineReader, GivesEveryLine) {
  const TestDirectory folder;
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of(folder.write("a", "")), Lines{});
  EXPECT_EQ(lines_of(folder.write("a", "\n")), Lines{""});
  EXPECT_EQ(lines_of(folder.write("a", "x\ny")), (Lines{"x", "y"}));
  EXPECT_EQ(lines_of(folder.write("a", "x\n\ny\n")), (Lines{"x", "", "y"}));
}

TEST(LineReader, LinesMayBeLongerThanWhatIsReadAtOnce) {
  const TestDirectory folder;
  std::vector<std::string> lines;
  std::string content;
  for (const std::size_t bytes : {5u, 3'000'000u, 0u, 1'048'576u, 17u}) {
    lines.emplace_back(bytes, static_cast<char>('a' + lines.size()));
    content += lines.back() + "\n";
  }
  EXPECT_EQ(lines_of(folder.write("a", content)), lines);
}

TEST(Documents, BlankLinesAreNone) {
  const TestDirectory folder;
  std::vector<std::string> documents;
  for_each_document(folder.write("a.jsonl", "{\"text\":\"a\"}\r\n  \r\n{\"text\":\"\"}\n"),
                    [&](std::string_view text) { documents.emplace_back(text); });
  EXPECT_EQ(documents, (std::vector<std::string>{"a", ""}));
}

TEST(Documents, ATextLargerThanTheMemoryIsRefused) {
  const TestDirectory folder;
  const auto path = folder.write("a.txt", "");
  std::error_code too_large;
  std::filesystem::resize_file(path, std::uintmax_t{1} << 42, too_large);  // takes no room
  if (too_large) GTEST_SKIP() << "no file of 4 TiB here: " << too_large.message();
  EXPECT_TRUE(names(error_text([&] { for_each_document(path, [](std::string_view) {}); }), path.string(), "4.00 TiB",
                    "one document", ".jsonl"));
}

TEST(Documents, FineTuningDataIsRefusedWithTheWayOut) {
  for (const char* line : {R"({"messages": [{"role": "user"}]})", R"({"prompt": "a", "completion": "b"})"})
    EXPECT_TRUE(
        names(error_text([&] { text_of_json_line(line, "a.jsonl", 4); }), "a.jsonl:4", "no \"text\"", "train --data"));
}

}  // namespace
}  // namespace zeepo
