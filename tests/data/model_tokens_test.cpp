#include "zeepo/data/model_tokens.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"

namespace zeepo {
namespace {

class ModelTokens : public testing::Test {
 protected:
  TestDirectory folder_;
  Tokenizer tokenizer_ =
      Tokenizer::load(std::filesystem::path(kTestData) / "golden/tokenizers/llama3-bpe/tokenizer.json");
};

TEST_F(ModelTokens, ConfigSaysTheVocabularyElseTheTokenizer) {
  EXPECT_EQ(vocabulary_size(folder_.path(), tokenizer_), 903);
  folder_.write("config.json", R"({"vocab_size": 128256})");
  EXPECT_EQ(vocabulary_size(folder_.path(), tokenizer_), 128'256);
  folder_.write("config.json", R"({"vocab_size": -1})");
  EXPECT_NE(error_text([&] { vocabulary_size(folder_.path(), tokenizer_); }).find("config.json.vocab_size: -1 must be"),
            std::string::npos);
}

TEST_F(ModelTokens, TheFirstFileThatNamesAnEndTokenCounts) {
  EXPECT_EQ(end_token(folder_.path(), tokenizer_), std::nullopt);
  folder_.write("tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}})");
  EXPECT_EQ(end_token(folder_.path(), tokenizer_), 902);
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|user|>"})");
  EXPECT_EQ(end_token(folder_.path(), tokenizer_), 901);
  folder_.write("config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(end_token(folder_.path(), tokenizer_), 7);
  folder_.write("generation_config.json", R"({"eos_token_id": [9, 8]})");
  EXPECT_EQ(end_token(folder_.path(), tokenizer_), 9);
  folder_.write("generation_config.json", R"({"eos_token_id": null})");
  EXPECT_EQ(end_token(folder_.path(), tokenizer_), 7);
}

TEST_F(ModelTokens, AnUnknownEndTokenIsAnError) {
  folder_.write("tokenizer_config.json", R"({"eos_token": "<|nothing|>"})");
  EXPECT_NE(error_text([&] { end_token(folder_.path(), tokenizer_); }).find("is not a token of tokenizer.json"),
            std::string::npos);
}

}  // namespace
}  // namespace zeepo
