// Whole templates and single constructs beside what Jinja makes of them: chat_cases.json, by make_chat_cases.py.
#include <gtest/gtest.h>

#include <ctime>

#include "tests/support/places.h"
#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/chat/chat_template.h"
#include "zeepo/chat/json_text.h"

namespace zeepo {
namespace {

using jinja::Value;

const Value& at(const Value& value, std::string_view key) {
  const Value* found = value.dict()->member(key);
  if (found == nullptr) throw Error("chat_cases.json: no {}", key);
  return *found;
}

const Value& cases() {
  static const Value all = jinja::parse_json_value(
      read_text(std::filesystem::path(kTestData).parent_path() / "chat/chat_cases.json"), "chat_cases.json");
  return all;
}

std::time_t noon() {
  std::tm time{};
  time.tm_year = 124;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 12;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

// The text that the template gives, and what its generation blocks gave; or an Error, where the case has one.
void expect_as_jinja(const ChatTemplate& chat, const Value& messages, ChatOptions options, const Value& expected,
                     const std::string& about) {
  options.now = noon();
  if (const Value* error = expected.dict()->member("error")) {
    EXPECT_THROW(chat.render(messages, options), Error) << about << "\nJinja: " << *error->text();
    return;
  }
  try {
    const jinja::Rendered rendered = chat.render(messages, options);
    EXPECT_EQ(rendered.text, *at(expected, "text").text()) << about;
    const auto& generated = at(expected, "generated").list()->items;
    ASSERT_EQ(rendered.generated.size(), generated.size()) << about;
    for (std::size_t i = 0; i < generated.size(); ++i) {
      const auto [begin, end] = rendered.generated[i];
      EXPECT_EQ(rendered.text.substr(begin, end - begin), *generated[i].text()) << about;
    }
  } catch (const Error& error) {
    ADD_FAILURE() << about << "\n" << error.what();
  }
}

TEST(ChatCases, FamiliesRenderAsInJinja) {
  for (const Value& one : at(cases(), "families").list()->items) {
    const std::string& family = *at(one, "family").text();
    const ChatTemplate chat =
        ChatTemplate::parse(*at(at(cases(), "templates"), family).text(), family, at(cases(), "special_tokens"));
    const Value& given = at(one, "given");
    ChatOptions options;
    options.variables = given;
    if (const Value* tools = given.dict()->member("tools")) options.tools = *tools;
    if (const Value* prompt = given.dict()->member("add_generation_prompt"))
      options.add_generation_prompt = is_true(*prompt);
    expect_as_jinja(chat, at(given, "messages"), options, one, family + ", " + *at(one, "conversation").text());
  }
}

TEST(ChatCases, PiecesRenderAsInJinja) {
  const Value& pieces = at(cases(), "pieces");
  for (const Value& one : at(pieces, "cases").list()->items) {
    const std::string& source = *at(one, "template").text();
    ChatOptions options;
    options.variables = at(pieces, "variables");
    try {
      const ChatTemplate chat = ChatTemplate::parse(source, "piece", jinja::make_dict({}));
      expect_as_jinja(chat, jinja::make_list({}), options, one, source);
    } catch (const Error& error) {
      EXPECT_NE(one.dict()->member("error"), nullptr) << source << "\n" << error.what();
    }
  }
}

}  // namespace
}  // namespace zeepo
