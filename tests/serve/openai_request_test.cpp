#include "zeepo/serve/openai_request.h"
#include "tests/support/places.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/chat/value.h"
#include "zeepo/serve/openai_server.h"

namespace zeepo {
namespace {

ServedModel model() {
  const auto golden = std::filesystem::path(kTestData) / "golden";
  ServedModel served{"m",
                     load_config(golden / "llama-tiny"),
                     Tokenizer::load(golden / "tokenizers/llama3-bpe/tokenizer.json"),
                     std::nullopt,
                     48,
                     4};
  served.config.vocab = 904;
  served.config.max_positions = 64;
  return served;
}

TEST(OpenAiRequest, HasOpenAisDefaults) {
  const OpenAiRequest request = parse_completion(R"({"prompt":[1,2,3]})", model());
  EXPECT_EQ(request.prompts, (std::vector<std::vector<std::int32_t>>{{1, 2, 3}}));
  EXPECT_EQ(request.max_new_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_EQ(request.sampling.top_p, 1);
  EXPECT_EQ(request.copies, 1);
  EXPECT_EQ(request.likelihoods, -1);
  EXPECT_FALSE(request.stream);
  EXPECT_NE(request.sampling.seed, parse_completion(R"({"prompt":[1,2,3]})", model()).sampling.seed);
}

TEST(OpenAiRequest, TakesAllFormsOfAPrompt) {
  const ServedModel served = model();
  const auto prompts = [&](const std::string& prompt) {
    return parse_completion(R"({"max_tokens":1,"prompt":)" + prompt + "}", served).prompts;
  };
  EXPECT_EQ(prompts(R"("hello")"), prompts(R"(["hello"])"));
  EXPECT_EQ(prompts(R"(["hello","b"])").size(), 2u);
  EXPECT_EQ(prompts("[[1],[2,3]]"), (std::vector<std::vector<std::int32_t>>{{1}, {2, 3}}));
}

// By the KV cache where that is smaller than the model.
TEST(OpenAiRequest, IsBoundByTheRoomThereIs) {
  ServedModel served = model();
  EXPECT_EQ(parse_completion(R"({"prompt":[1,2],"max_tokens":46})", served).max_new_tokens, 46);
  EXPECT_TRUE(names(error_text([&] { parse_completion(R"({"prompt":[1,2],"max_tokens":47})", served); }), "max_tokens",
                    "48 positions"));
  EXPECT_TRUE(
      names(error_text([&] { parse_completion(R"({"prompt":[1,2],"n":5})", served); }), "5 texts", "at most 4"));
  EXPECT_EQ(error_text([&] { parse_completion(R"({"prompt":""})", served); }),
            "prompt: is empty; give at least one token");
  const std::string ids(100, '1');
  EXPECT_EQ(error_text([&] { parse_completion(fmt::format(R"({{"prompt":[{}]}})", fmt::join(ids, ",")), served); }),
            "prompt: 100 tokens, but there is room for 48");
  served.chat = ChatTemplate::parse("{{ messages[0].content }}", "template", jinja::make_dict({}));
  const OpenAiRequest chat = parse_chat(R"({"messages":[{"role":"user","content":"ab"}]})", served);
  EXPECT_EQ(chat.max_new_tokens, 48 - static_cast<std::int64_t>(chat.prompts[0].size()));
  served.positions = served.config.max_positions = 100000;
  EXPECT_EQ(parse_chat(R"({"messages":[{"role":"user","content":"ab"}]})", served).max_new_tokens, 4096);
}

TEST(OpenAiRequest, AFailingTemplateIsTheClientsError) {
  ServedModel served = model();
  const std::string body = R"({"messages":[{"role":"user","content":"ab"}]})";
  EXPECT_TRUE(names(error_text([&] { parse_chat(body, served); }), "no chat template"));
  served.chat = ChatTemplate::parse("{{ raise_exception('roles must alternate') }}", "template", jinja::make_dict({}));
  EXPECT_TRUE(names(error_text([&] { parse_chat(body, served); }), "roles must alternate"));
}

TEST(ApiKeys, AdmitWhoHasOne) {
  EXPECT_TRUE(ApiKeys().admit(""));
  const TestDirectory directory;
  const auto file = directory.path() / "keys";
  std::ofstream(file) << "one\n\n two \r\n";
  const ApiKeys keys = ApiKeys::load(file);
  for (const char* right : {"Bearer one", "Bearer two"}) EXPECT_TRUE(keys.admit(right)) << right;
  for (const char* wrong :
       {"", "Bearer ", "Bearer on", "Bearer ones", "one", "bearer one", "Bearer  two", "Bearer onf"})
    EXPECT_FALSE(keys.admit(wrong)) << wrong;
  std::ofstream(file) << "\n \n";
  EXPECT_TRUE(names(error_text([&] { ApiKeys::load(file); }), "keys", "no key"));
}

}  // namespace
}  // namespace zeepo
