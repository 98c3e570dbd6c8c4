// tokenizer.json comes from strangers: each fault is one Error that names it.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "zeepo/data/tokenizer.h"

namespace zeepo {
namespace {

using nlohmann::json;

json small() {
  return json::parse(R"({
    "version": "1.0",
    "added_tokens": [{"id": 3, "content": "<e>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
              "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false,
              "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

std::string fault(const std::function<void(json&)>& change) {
  json document = small();
  change(document);
  return error_text([&] { Tokenizer::parse(document.dump(), "t.json"); });
}

TEST(TokenizerJson, TheSmallOneWorks) {
  const Tokenizer tokenizer = Tokenizer::parse(small().dump(), "t.json");
  EXPECT_EQ(tokenizer.encode("abba<e>"), (std::vector<std::int32_t>{2, 1, 0, 3}));
  EXPECT_EQ(tokenizer.vocab_size(), 4);
}

TEST(TokenizerJson, WhatIsNotSupportedIsNamed) {
  EXPECT_EQ(fault([](json& j) { j["model"]["type"] = "Unigram"; }),
            "t.json.model: model \"Unigram\" is not supported; BPE is");
  // Whatever else such a file has.
  for (const json& normalizer : {json(nullptr), json{{"type", "Prepend"}, {"prepend", "_"}}})
    EXPECT_TRUE(names(fault([&](json& j) {
                        j["normalizer"] = normalizer;
                        j["model"]["byte_fallback"] = true;
                      }),
                      "t.json.model: byte_fallback is not supported", "SentencePiece", "--ids"));
  EXPECT_EQ(fault([](json& j) { j["model"]["dropout"] = 0.1; }),
            "t.json.model.dropout: 0.1 is not supported, must be null");
  EXPECT_EQ(fault([](json& j) { j["model"]["end_of_word_suffix"] = "</w>"; }),
            "t.json.model.end_of_word_suffix: \"</w>\" is not supported");
  EXPECT_EQ(fault([](json& j) {
              j["normalizer"] = {{"type", "Lowercase"}};
            }),
            "t.json.normalizer: normalizer \"Lowercase\" is not supported; NFC, NFD, NFKC, NFKD and Sequence are");
  EXPECT_EQ(fault([](json& j) {
              j["pre_tokenizer"] = {{"type", "Metaspace"}};
            }),
            "t.json.pre_tokenizer: pre-tokenizer \"Metaspace\" is not supported; ByteLevel, Split, Digits and a "
            "Sequence of them are");
  EXPECT_EQ(fault([](json& j) {
              j["pre_tokenizer"] = {{"type", "Digits"}, {"individual_digits", true}};
            }),
            "t.json.pre_tokenizer: has no ByteLevel; only byte-level tokenizers are supported");
  EXPECT_EQ(fault([](json& j) {
              j["post_processor"] = {{"type", "RobertaProcessing"}};
            }),
            "t.json.post_processor: post-processor \"RobertaProcessing\" is not supported; ByteLevel, "
            "TemplateProcessing and Sequence are");
  EXPECT_EQ(fault([](json& j) {
              j["decoder"] = {{"type", "WordPiece"}};
            }),
            "t.json.decoder: decoder \"WordPiece\" is not supported; ByteLevel is");
}

TEST(TokenizerJson, WrongKindsAndMissingKeysSayWhere) {
  EXPECT_EQ(fault([](json& j) { j.erase("model"); }), "t.json: has no \"model\"");
  EXPECT_EQ(fault([](json& j) { j["pre_tokenizer"] = nullptr; }), "t.json: has no \"pre_tokenizer\"");
  EXPECT_EQ(fault([](json& j) { j["model"] = json::array(); }), "t.json.model: is array, must be an object");
  EXPECT_EQ(fault([](json& j) { j["model"]["vocab"] = 7; }), "t.json.model.vocab: is number, must be an object");
  EXPECT_EQ(fault([](json& j) { j["model"]["merges"] = "a b"; }), "t.json.model.merges: must be a list");
  EXPECT_EQ(fault([](json& j) { j["added_tokens"][0]["special"] = "yes"; }),
            "t.json.added_tokens[0].special: is string, must be true or false");
  EXPECT_EQ(fault([](json& j) { j["version"] = "2.0"; }), "t.json.version: \"2.0\" is not supported, must be \"1.0\"");
  EXPECT_EQ(fault([](json& j) { j = json::array(); }), "t.json: is array, must be an object");
}

TEST(TokenizerJson, IdsMustBeSoundAndUnique) {
  for (const json& id : {json(-1), json(1.5), json("0"), json(1ull << 40), json(nullptr), json(json::array())})
    EXPECT_NE(fault([&](json& j) { j["model"]["vocab"]["b"] = id; }).find("the id of \"b\" is"), std::string::npos);
  EXPECT_EQ(fault([](json& j) { j["model"]["vocab"]["b"] = 0; }),
            "t.json.model.vocab: \"a\" and \"b\" have the same id 0");
  EXPECT_EQ(fault([](json& j) { j["added_tokens"][0]["id"] = 5; }),
            "t.json.added_tokens[0]: id 5 of \"<e>\" must be 3, its id in the vocabulary or the next one after it");
  EXPECT_EQ(fault([](json& j) { j["added_tokens"][0]["id"] = -2; }),
            "t.json.added_tokens[0].id: -2 must be from 0 to 16777215");
}

TEST(TokenizerJson, MergesMustBeOfKnownTokens) {
  EXPECT_EQ(fault([](json& j) { j["model"]["merges"] = json::array({"b a"}); }),
            "t.json.model.merges[0]: \"ba\" is not in the vocabulary");
  for (const json& merge : {json("ab"), json("a b a"), json(7), json::array({"a"}), json::array({"a", 1}), json("")})
    EXPECT_EQ(fault([&](json& j) { j["model"]["merges"] = json::array({merge}); }),
              "t.json.model.merges[0]: must be two tokens, \"a b\" or [\"a\", \"b\"]");
}

TEST(TokenizerJson, WhatIsNotJsonIsAnError) {
  for (const std::string_view text : {"", "{", "nul", "{\"model\": \"\xFF\"}", "[\"\\ud800\"]"})
    EXPECT_EQ(error_text([&] { Tokenizer::parse(text, "t.json"); }).substr(0, 17), "t.json: not JSON:") << text;
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  EXPECT_EQ(error_text([&] { Tokenizer::parse(deep, "t.json"); }), "t.json: is array, must be an object");
}

TEST(TokenizerJson, AByteWithoutATokenIsAnErrorWhenItIsMet) {
  const Tokenizer tokenizer = Tokenizer::parse(small().dump(), "t.json");
  EXPECT_EQ(error_text([&] { tokenizer.encode("abc"); }),
            "tokenizer: the vocabulary has no token for byte 0x63, spelled \"c\"");
}

TEST(TokenizerJson, AnExpressionThatNeverEndsIsStopped) {
  json document = small();
  document["pre_tokenizer"] = json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "pattern": {"Regex": "(a|aa)+$"}, "behavior": "Isolated", "invert": false},
      {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]})");
  const Tokenizer tokenizer = Tokenizer::parse(document.dump(), "t.json");
  EXPECT_NE(error_text([&] { tokenizer.encode(std::string(200, 'a') + "b"); }).find("match limit exceeded"),
            std::string::npos);
}

TEST(TokenizerJson, WithoutADecoderThereIsNoText) {
  json document = small();
  document["decoder"] = nullptr;
  const Tokenizer tokenizer = Tokenizer::parse(document.dump(), "t.json");
  EXPECT_EQ(error_text([&] { tokenizer.decode(std::vector<std::int32_t>{0}); }),
            "t.json: decoder is null, so that its tokens cannot be turned into text");
}

}  // namespace
}  // namespace zeepo
