#include "zeepo/chat/training_example.h"
#include "tests/support/places.h"

#include "tests/support/errors.h"
#include "zeepo/chat/json_text.h"

namespace zeepo {
namespace {

using Parts = std::vector<std::string>;

constexpr std::string_view kMarked =
    "{% for m in messages %}<|{{ m.role }}|>\n{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|end|>"
    "{% endgeneration %}{% else %}{{ m.content }}<|end|>{% endif %}\n\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}";
constexpr std::string_view kPlain =
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' + m.content + '<|end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}";
// Thoughts are written before the last answer alone.
constexpr std::string_view kThinking =
    "{% for m in messages %}{{ '<|' + m.role + '|>\n' }}{% if loop.last and m.role == 'assistant' %}<think></think>"
    "{% endif %}{{ m.content + '<|end|>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif "
    "%}";

class TrainingExamples : public testing::Test {
 protected:
  // The texts of the stretches of tokens, those that count in brackets.
  Parts parts(std::string_view chat, const std::string& line) {
    const ChatTemplate made = ChatTemplate::parse(chat, "chat.jinja", jinja::make_dict({}));
    ExampleEncoder encoder(tokenizer_, &made, 0);
    return parts(encoder.encode(jinja::parse_json_value(line, "data.jsonl:3"), "data.jsonl:3"));
  }
  Parts parts(const TrainingExample& example) {
    Parts parts;
    std::size_t at = 0;
    for (const auto& [tokens, counts] : example.runs) {
      const std::string text = tokenizer_.decode(std::span(example.ids).subspan(at, static_cast<std::size_t>(tokens)));
      parts.push_back(counts ? "[" + text + "]" : text);
      at += static_cast<std::size_t>(tokens);
    }
    EXPECT_EQ(at, example.ids.size());
    return parts;
  }

  Tokenizer tokenizer_ =
      Tokenizer::load(std::filesystem::path(kTestData) / "golden/tokenizers/gpt2-bpe/tokenizer.json");
};

constexpr const char* kTwoTurns = R"({"messages": [{"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "Hello!"}, {"role": "user", "content": "And?"},
    {"role": "assistant", "content": "Bye."}]})";

TEST_F(TrainingExamples, GenerationBlocksSayWhatCounts) {
  EXPECT_EQ(parts(kMarked, kTwoTurns), (Parts{"<|user|>\nHi<|end|>\n<|assistant|>\n", "[Hello!<|end|>]",
                                              "\n<|user|>\nAnd?<|end|>\n<|assistant|>\n", "[Bye.<|end|>]", "\n"}));
}

TEST_F(TrainingExamples, WithoutThemEachOfTheAssistantsTurnsCountsWithItsEnd) {
  EXPECT_EQ(parts(kPlain, kTwoTurns), (Parts{"<|user|>\nHi<|end|>\n<|assistant|>\n", "[Hello!<|end|>\n]",
                                             "<|user|>\nAnd?<|end|>\n<|assistant|>\n", "[Bye.<|end|>\n]"}));
}

TEST_F(TrainingExamples, ThoughtsMayBeLeftOutOfEarlierTurns) {
  EXPECT_EQ(parts(kThinking, kTwoTurns),
            (Parts{"<|user|>\nHi<|end|>\n<|assistant|>\n", "[Hello!<|end|>\n]",
                   "<|user|>\nAnd?<|end|>\n<|assistant|>\n", "[<think></think>Bye.<|end|>\n]"}));
}

TEST_F(TrainingExamples, ATemplateThatRewritesEarlierTurnsIsRefusedWithTheWayOut) {
  const std::string rewriting = "{{ messages | length }}" + std::string(kPlain);
  const std::string text = error_text([&] { parts(rewriting, kTwoTurns); });
  EXPECT_TRUE(names(text, "data.jsonl:3", "messages[1]", "chat.jinja", "{% generation %}"));
  EXPECT_TRUE(
      names(error_text([&] { parts("{% macro m() %}" + std::string(kMarked) + "{% endmacro %}{{ m() }}", kTwoTurns); }),
            "data.jsonl:3", "macro"));
}

// The template ends the part that counts in the middle of the token " the".
TEST_F(TrainingExamples, TokensAreThoseOfTheWholeTextWhereverThePartsEnd) {
  constexpr std::string_view kCut =
      "The the{% generation %} the the t{% endgeneration %}he the{% generation %}n{% endgeneration %}";
  const ChatTemplate made = ChatTemplate::parse(kCut, "chat.jinja", jinja::make_dict({}));
  ExampleEncoder encoder(tokenizer_, &made, std::nullopt);
  const auto example = encoder.encode(jinja::parse_json_value(R"({"messages": [{"role": "user"}]})", "l"), "l");
  EXPECT_EQ(example.ids, tokenizer_.encode("The the the the the then"));
  std::string counted;
  for (const std::string& part : parts(example))
    if (part.starts_with("[")) counted += part;
  EXPECT_TRUE(names(counted, "[ the the the]")) << counted;
}

TEST_F(TrainingExamples, OfPromptAndCompletionTheCompletionAndTheEndCount) {
  EXPECT_EQ(parts(kPlain, R"({"prompt": "Two and two", "completion": " is four."})"),
            (Parts{"Two and two", "[ is four." + tokenizer_.decode(std::vector<std::int32_t>{0}) + "]"}));
  ExampleEncoder bare(tokenizer_, nullptr, std::nullopt);
  const auto example = bare.encode(jinja::parse_json_value(R"({"prompt": "", "completion": " is"})", "l"), "l");
  EXPECT_EQ(example.ids, tokenizer_.encode(" is"));
  ASSERT_EQ(example.runs.size(), 1u);
}

TEST_F(TrainingExamples, PromptAndCompletionMayBeMessages) {
  EXPECT_EQ(
      parts(kPlain, R"({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                {"role": "user", "content": "c"}], "completion": [{"role": "assistant", "content": "d"}]})"),
      (Parts{"<|user|>\na<|end|>\n<|assistant|>\nb<|end|>\n<|user|>\nc<|end|>\n<|assistant|>\n", "[d<|end|>\n]"}));
}

TEST_F(TrainingExamples, ToolsAndVariablesReachTheTemplateAndTheDateStaysTheSame) {
  constexpr std::string_view kWith =
      "{{ tools | length }}{{ tone }}{{ strftime_now('%d %b %Y') }}"
      "{% generation %}x{% endgeneration %}";
  EXPECT_EQ(parts(kWith, R"({"messages": [{"role": "user"}], "tools": [1, 2], "chat_template_kwargs": {"tone": "q"}})"),
            (Parts{"2q26 Jul 2024", "[x]"}));
}

TEST_F(TrainingExamples, FaultsNameTheLine) {
  const auto fault = [&](std::string_view chat, const std::string& line) {
    return error_text([&] { parts(chat, line); });
  };
  EXPECT_TRUE(names(fault(kPlain, R"({"messages": []})"), "data.jsonl:3", "at least one"));
  EXPECT_TRUE(names(fault(kPlain, R"({"messages": [{"content": "x"}]})"), "data.jsonl:3", "messages[0]", "role"));
  EXPECT_TRUE(names(fault(kPlain, R"({"prompt": "x", "completion": []})"), "data.jsonl:3", "both"));
  EXPECT_TRUE(names(fault("{{ raise_exception('no') }}", kTwoTurns), "data.jsonl:3", "chat.jinja:1", "no"));
  ExampleEncoder bare(tokenizer_, nullptr, 0);
  EXPECT_TRUE(names(error_text([&] { bare.encode(jinja::parse_json_value(kTwoTurns, "l"), "l:1"); }), "l:1",
                    "chat_template.jinja"));
}

}  // namespace
}  // namespace zeepo
