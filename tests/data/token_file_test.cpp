#include "zeepo/data/token_file.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/data/token_data.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;

Ids all(const TokenFile& file) {
  Ids ids(static_cast<std::size_t>(file.tokens()));
  file.read(0, ids);
  return ids;
}

TEST(TokenFile, WidthFollowsTheVocabulary) {
  EXPECT_EQ(token_bytes(65'536), 2u);
  EXPECT_EQ(token_bytes(65'537), 4u);
}

TEST(TokenFile, WhatIsWrittenIsRead) {
  const TestDirectory folder;
  for (const std::int64_t vocab_size : {65'536, 200'000}) {
    Ids ids(50'000);
    std::iota(ids.begin(), ids.end(), 0);
    ids.back() = static_cast<std::int32_t>(vocab_size - 1);
    TokenFileWriter writer(folder.path() / "t.bin", vocab_size);
    writer.append(std::span(ids).first(7));
    writer.append(std::span(ids).subspan(7));
    EXPECT_EQ(writer.tokens(), 50'000);
    writer.commit();
    const TokenFile file(folder.path() / "t.bin", vocab_size);
    EXPECT_EQ(all(file), ids);
    Ids some(3);
    file.read(41'000, some);
    EXPECT_EQ(some, (Ids{41'000, 41'001, 41'002}));
  }
}

TEST(TokenFile, IsLittleEndianWithoutAHeader) {
  const TestDirectory folder;
  EXPECT_EQ(all(TokenFile(folder.write("a.bin", std::string_view("\x01\x02\x03\x00", 4)), 1000)), (Ids{0x201, 3}));
  EXPECT_EQ(all(TokenFile(folder.write("b.bin", std::string_view("\x01\x02\x03\x00", 4)), 1'000'000)), (Ids{0x30201}));
}

TEST(TokenFile, NothingIsLeftWithoutCommit) {
  const TestDirectory folder;
  { TokenFileWriter(folder.path() / "t.bin", 10).append(Ids{1, 2, 3}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(TokenFile, FaultsNameTheFileAndThePlace) {
  const TestDirectory folder;
  const std::string name = (folder.path() / "t.bin").string();
  folder.write("t.bin", "");
  EXPECT_EQ(error_text([&] { TokenFile(name, 10); }), name + ": has no tokens");
  folder.write("t.bin", "abc");
  EXPECT_EQ(error_text([&] { TokenFile(name, 10); }),
            name + ": 3 bytes are not whole tokens of 2 bytes (the vocabulary has 10 entries)");
  folder.write("t.bin", std::string_view("\x09\x00\x0a\x00", 4));
  EXPECT_EQ(error_text([&] { all(TokenFile(name, 10)); }),
            name + ": token 1 is 10, but the vocabulary has 10 entries; was it made with another tokenizer?");
  Ids two(2);
  EXPECT_EQ(error_text([&] { TokenFile(name, 20).read(1, two); }), name + ": tokens 1 to 3 were asked for, it has 2");
  TokenFileWriter writer(name, 10);
  writer.append(Ids{1});
  EXPECT_EQ(error_text([&] {
              writer.append(Ids{2, -1});
            }),
            name + ": token 2 is -1, but the vocabulary has 10 entries; was it made with another tokenizer?");
}

class TokenData : public testing::Test {
 protected:
  TokenFile open(const std::string& name, std::string_view content, std::optional<std::int32_t> eos = {}) const {
    return open_token_data(folder_.write(name, content), 700, &tokenizer_, eos);
  }

  TestDirectory folder_;
  Tokenizer tokenizer_ =
      Tokenizer::load(std::filesystem::path(kTestData) / "golden/tokenizers/gpt2-bpe/tokenizer.json");
};

TEST_F(TokenData, TextIsOneDocumentAsItStands) {
  EXPECT_EQ(all(open("a.txt", "Hello, world!\n", 0)), tokenizer_.encode("Hello, world!\n"));
  EXPECT_EQ(error_text([&] { open("e.txt", ""); }), (folder_.path() / "e.txt").string() + ": has no tokens");
}

TEST_F(TokenData, EachJsonLineEndsWithEos) {
  Ids expected = tokenizer_.encode("one");
  expected.push_back(0);
  for (const std::int32_t id : tokenizer_.encode("zwei\n")) expected.push_back(id);
  expected.push_back(0);
  const std::string_view lines = "{\"text\": \"one\", \"n\": [1]}\n\n{\"text\": \"zwei\\n\"}";
  EXPECT_EQ(all(open("a.jsonl", lines, 0)), expected);
  std::erase(expected, 0);
  EXPECT_EQ(all(open("a.jsonl", lines)), expected);
}

TEST_F(TokenData, ABinIsReadAsItIs) {
  EXPECT_EQ(all(open("a.bin", std::string_view("\x01\x00\x02\x00", 4))), (Ids{1, 2}));
}

TEST_F(TokenData, FaultsNameTheFileAndTheLine) {
  const std::string folder = folder_.path().string();
  EXPECT_EQ(error_text([&] { open("a.csv", "x"); }),
            folder + "/a.csv: \".csv\" is not known; data is .bin (tokens), .txt or .jsonl with \"text\"");
  EXPECT_EQ(error_text([&] { open("a.jsonl", "{\"text\": \"x\"}\n{\"txt\": \"x\"}\n"); }),
            folder + "/a.jsonl:2: has no \"text\"");
  EXPECT_EQ(error_text([&] { open("a.jsonl", "\n\n{\"text\": 7}\n"); }),
            folder + "/a.jsonl:3.text: is number, must be a string");
  EXPECT_NE(error_text([&] { open("a.jsonl", "{\"text\": \"x\"\n"); }).find("/a.jsonl:1: not JSON:"),
            std::string::npos);
  EXPECT_EQ(error_text([&] { open("a.txt", "ab\xFF"); }), folder + "/a.txt: not valid UTF-8 at byte 2 of 3 (0xff)");
  EXPECT_NE(
      error_text([&] { open_token_data(folder_.write("b.txt", "x"), 700, nullptr, {}); }).find("needs a tokenizer"),
      std::string::npos);
  EXPECT_NE(error_text([&] { open_token_data(folder_.write("b.txt", "x"), 10, &tokenizer_, {}); }).find("10 entries"),
            std::string::npos);
}

}  // namespace
}  // namespace zeepo
