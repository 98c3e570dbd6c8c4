#include "zeepo/data/tokenizer.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/errors.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

using Ids = std::vector<std::int32_t>;
using nlohmann::json;

const std::filesystem::path kData = kTestData;
const std::filesystem::path kGolden = kData / "golden/tokenizers";

json read_json(const std::filesystem::path& path) { return json::parse(read_text(path)); }

std::string stream(const Tokenizer& tokenizer, const Ids& ids, Special special) {
  StreamDecoder decoder(tokenizer, special);
  std::string text;
  for (const std::int32_t id : ids) text += decoder.push(id);
  return text + decoder.finish();
}

class Golden : public testing::TestWithParam<const char*> {};

TEST_P(Golden, TextToIdsAndBack) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / GetParam() / "tokenizer.json");
  for (const json& item : read_json(kGolden / GetParam() / "cases.json")) {
    const Ids ids = item["ids"];
    EXPECT_EQ(tokenizer.encode(item["text"].get<std::string>()), ids) << item["text"];
    EXPECT_EQ(tokenizer.decode(ids), item["decoded"].get<std::string>());
    EXPECT_EQ(stream(tokenizer, ids, Special::keep), item["decoded"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizer, Golden, testing::Values("gpt2-bpe", "llama3-bpe"));

// tokenizer_cases.json was made with the tokenizers library; see make_tokenizer_cases.py.
TEST(Tokenizer, EveryVariantDoesAsTheTokenizersLibrary) {
  const json base = read_json(kGolden / "gpt2-bpe/tokenizer.json");
  for (const json& variant : read_json(kData / "tokenizer_cases.json")) {
    SCOPED_TRACE(variant["name"]);
    json document = base;
    for (const auto& [key, value] : variant["patch"].items()) {
      if (key == "model") {
        document["model"].update(value);
      } else {
        document[key] = value;
      }
    }
    const Tokenizer tokenizer = Tokenizer::parse(document.dump(), "variant");
    for (const json& item : variant["cases"]) {
      const std::string text = item["text"];
      EXPECT_EQ(tokenizer.encode(text), item["ids"].get<Ids>()) << item["text"];
      EXPECT_EQ(tokenizer.encode(text, AddSpecial::yes), item["with_special"].get<Ids>()) << item["text"];
      const Ids ids = item["decode"];
      EXPECT_EQ(tokenizer.decode(ids), item["decoded"].get<std::string>());
      EXPECT_EQ(tokenizer.decode(ids, Special::skip), item["without_special"].get<std::string>());
      EXPECT_EQ(stream(tokenizer, ids, Special::keep), item["decoded"].get<std::string>());
      EXPECT_EQ(stream(tokenizer, ids, Special::skip), item["without_special"].get<std::string>());
    }
  }
}

TEST(Tokenizer, MergesMayBeStringsOrPairs) {
  json document = read_json(kGolden / "gpt2-bpe/tokenizer.json");
  const Tokenizer pairs = Tokenizer::parse(document.dump(), "pairs");
  for (json& merge : document["model"]["merges"])
    merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
  const Tokenizer strings = Tokenizer::parse(document.dump(), "strings");
  const std::string text = "the quick brown fox returns the memory of the optimizer";
  EXPECT_EQ(strings.encode(text), pairs.encode(text));
}

TEST(Tokenizer, AnEncoderGivesTheSameForTextItHasSeen) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / "llama3-bpe/tokenizer.json");
  Encoder encoder(tokenizer);
  for (int time = 0; time < 3; ++time)
    for (const json& item : read_json(kGolden / "llama3-bpe/cases.json")) {
      Ids ids;
      encoder.encode(item["text"].get<std::string>(),
                     [&](std::span<const std::int32_t> some) { ids.insert(ids.end(), some.begin(), some.end()); });
      EXPECT_EQ(ids, item["ids"].get<Ids>());
    }
}

// A quadratic merge or a backtracking expression would take minutes here.
TEST(Tokenizer, AMegabyteWithoutASpaceRoundTrips) {
  for (const char* name : {"gpt2-bpe", "llama3-bpe"}) {
    const Tokenizer tokenizer = Tokenizer::load(kGolden / name / "tokenizer.json");
    for (const std::string_view unit : {"the", " ", "\n", "!", "é", "7", "世"}) {
      std::string text;
      while (text.size() < (1 << 20)) text += unit;
      EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text) << name << " " << unit;
    }
  }
}

TEST(Tokenizer, TextThatIsNotUtf8IsAnErrorWithItsOffset) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / "gpt2-bpe/tokenizer.json");
  EXPECT_EQ(error_text([&] { tokenizer.encode("abc\xFFz"); }),
            "tokenizer: the text is not valid UTF-8 at byte 3 of 5 (0xff)");
  EXPECT_EQ(error_text([&] { tokenizer.encode("\xE4\xBD"); }),
            "tokenizer: the text is not valid UTF-8 at byte 0 of 2 (0xe4)");
}

TEST(Tokenizer, KnowsItsVocabulary) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / "llama3-bpe/tokenizer.json");
  EXPECT_EQ(tokenizer.vocab_size(), 903);
  EXPECT_EQ(tokenizer.id_of("<|end|>"), 902);
  EXPECT_EQ(tokenizer.id_of("!"), 1);
  EXPECT_EQ(tokenizer.id_of("<|nothing|>"), std::nullopt);
}

TEST(StreamDecoder, HoldsACharacterUntilItIsWhole) {
  const Tokenizer tokenizer = Tokenizer::load(kGolden / "gpt2-bpe/tokenizer.json");
  const Ids ids = tokenizer.encode("你");
  ASSERT_EQ(ids.size(), 3u);
  StreamDecoder decoder(tokenizer);
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.push(ids[1]), "");
  EXPECT_EQ(decoder.push(ids[2]), "你");
  EXPECT_EQ(decoder.push(ids[0]), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

}  // namespace
}  // namespace zeepo
