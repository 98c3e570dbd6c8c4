#include "zeepo/chat/chat_template.h"

#include "tests/support/errors.h"
#include "tests/support/test_directory.h"
#include "zeepo/chat/json_text.h"

namespace zeepo {
namespace {

using jinja::Value;

std::string render(std::string_view source, const std::string& variables = "{}") {
  ChatOptions options;
  options.variables = jinja::parse_json_value(variables, "variables");
  return ChatTemplate::parse(source, "t.jinja", jinja::make_dict({})).render(jinja::make_list({}), options).text;
}

std::string fault(std::string_view source) {
  return error_text([&] { render(source); });
}

Value hello() { return jinja::parse_json_value(R"([{"role": "user", "content": "hi"}])", "messages"); }

TEST(ChatTemplate, ComesFromTheTokenizersConfiguration) {
  const TestDirectory model;
  EXPECT_FALSE(ChatTemplate::load(model.path()));
  model.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false}})");
  EXPECT_FALSE(ChatTemplate::load(model.path()));
  model.write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null,
      "chat_template": "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ pad_token }}"})");
  EXPECT_EQ(ChatTemplate::load(model.path())->render(hello()).text, "<s>hi</s>");
  model.write("tokenizer_config.json", R"({"chat_template": [{"name": "tool_use", "template": "tools"},
      {"name": "default", "template": "plain {{ add_generation_prompt }}"}]})");
  EXPECT_EQ(ChatTemplate::load(model.path())->render(hello(), {.add_generation_prompt = true}).text, "plain True");
  model.write("chat_template.jinja", "from a file\n");
  EXPECT_EQ(ChatTemplate::load(model.path())->render(hello()).text, "from a file");
}

TEST(ChatTemplate, AConfigurationThatIsWrongIsNamed) {
  const TestDirectory model;
  const auto load = [&](std::string_view config) {
    model.write("tokenizer_config.json", config);
    return error_text([&] { ChatTemplate::load(model.path()); });
  };
  EXPECT_TRUE(names(load("[]"), "tokenizer_config.json", "must be an object"));
  EXPECT_TRUE(names(load("{"), "tokenizer_config.json", "not JSON"));
  EXPECT_TRUE(names(load(R"({"chat_template": 5})"), "chat_template", "int"));
  EXPECT_TRUE(names(load(R"({"chat_template": [{"name": "a", "template": "x"}]})"), "none of the 1", "default"));
  EXPECT_TRUE(names(load(R"({"chat_template": "a\n{% if %}"})"), "tokenizer_config.json: chat_template:2:"));
}

TEST(ChatTemplate, ToolsAndDocumentsAreNoneUnlessGiven) {
  const auto chat =
      ChatTemplate::parse("{{ tools is none }} {{ documents is none }} {{ x }}", "t", jinja::make_dict({}));
  EXPECT_EQ(chat.render(hello()).text, "True True ");
  ChatOptions options;
  options.tools = jinja::make_list({});
  options.variables = jinja::parse_json_value(R"({"x": 5})", "variables");
  EXPECT_EQ(chat.render(hello(), options).text, "False True 5");
}

TEST(ChatTemplate, AnErrorNamesTheConstructAndTheLine) {
  EXPECT_TRUE(names(fault("a\n{% include 'x' %}"), "t.jinja:2:", "'include'", "not supported"));
  EXPECT_TRUE(names(fault("\n\n{{ 'x' | wordwrap }}"), "t.jinja:3:", "'wordwrap'", "not supported"));
  EXPECT_TRUE(names(fault("{{ 'x' | nope }}"), "t.jinja:1:", "no filter 'nope'"));
  EXPECT_TRUE(names(fault("{{ 'x' is nope }}"), "t.jinja:1:", "no test 'nope'"));
  EXPECT_TRUE(names(fault("{{ 'x'.zfill(3) }}"), "zfill", "not supported"));
  EXPECT_TRUE(names(fault("{{ 'x'.__class__ }}"), "__class__", "not allowed"));
  EXPECT_TRUE(names(fault("{% for x in [1] recursive %}{% endfor %}"), "recursive"));
  EXPECT_TRUE(names(fault("{{ messages.append(1) }}"), "append", "cannot change"));
  EXPECT_TRUE(names(fault("{{ raise_exception('only one') }}"), "refuses: only one"));
  EXPECT_TRUE(names(fault("{% if 1 %}\n\n{{ x.y.z }}{% endif %}"), "t.jinja:3:", "'x' is undefined"));
  EXPECT_TRUE(names(fault("\xff"), "UTF-8"));
}

TEST(ChatTemplate, WhatHasNoEndIsRefused) {
  EXPECT_TRUE(names(fault("{% for i in range(10 ** 9) %}{% endfor %}"), "range(1000000000)", "100000"));
  EXPECT_TRUE(names(fault("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"), "too deep"));
  EXPECT_TRUE(
      names(fault("{% set x = range(9999) %}{% for i in x %}{% for j in x %}{% endfor %}{% endfor %}"), "steps"));
  EXPECT_TRUE(names(
      fault("{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}"), "MiB"));
  EXPECT_TRUE(names(fault("{{ 'x' * 9000000000 }}"), "MiB"));
  EXPECT_TRUE(
      names(fault("{% set n = namespace(x=[1]) %}{% for i in range(999) %}{% set n.x = [n.x, n.x] %}{% endfor %}"),
            "deeper than 100"));
  EXPECT_TRUE(names(fault("{% set n = namespace(x=[1]) %}{% for i in range(90) %}{% set n.x = [n.x, n.x] %}{% endfor %}"
                          "{{ n.x == n.x[:] }}{{ n.x }}"),
                    "t.jinja:1:"));
  EXPECT_TRUE(
      names(fault("{% set n = namespace(x=[1]) %}{% for i in range(999) %}{% set n.x = [n.x.index] %}{% endfor %}"),
            "deeper than 100"));
  EXPECT_TRUE(names(fault("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}"), "nested deeper"));
  EXPECT_TRUE(names(fault("{{ 1" +
                          [] {
                            std::string sum;
                            for (int i = 0; i < 5000; ++i) sum += "+1";
                            return sum;
                          }() +
                          " }}"),
                    "nested deeper"));
}

TEST(ChatTemplate, WhatHoldsItselfIsFreed) {
  EXPECT_EQ(
      render("{% set n = namespace() %}{% set n.x = [n] %}{% macro m() %}{{ m }}{% endmacro %}{% set n.m = m %}a"),
      "a");
  EXPECT_EQ(
      render("{% set n = namespace(x=0) %}{% for i in range(9999) %}{% set n.x = namespace(x=n.x) %}{% endfor %}a"),
      "a");
}

TEST(ChatTemplate, GenerationInsideOfAMacroIsTold) {
  const auto chat = ChatTemplate::parse("{% macro m() %}{% generation %}x{% endgeneration %}{% endmacro %}{{ m() }}",
                                        "t", jinja::make_dict({}));
  EXPECT_TRUE(chat.has_generation_blocks());
  const jinja::Rendered rendered = chat.render(hello());
  EXPECT_EQ(rendered.text, "x");
  EXPECT_TRUE(rendered.generated_elsewhere);
  EXPECT_FALSE(ChatTemplate::parse("x", "t", jinja::make_dict({})).has_generation_blocks());
}

TEST(JsonText, KeepsTheOrderOfKeysAndRefusesWhatPythonWouldReadOtherwise) {
  EXPECT_EQ(render("{{ x | tojson }}", R"({"x": {"b": 1, "a": [1.0, 1e5, -0.0, null], "b": 2}})"),
            R"({"b": 2, "a": [1.0, 100000.0, -0.0, null]})");
  EXPECT_TRUE(
      names(error_text([] { jinja::parse_json_value("[18446744073709551615]", "n"); }), "n: 18446744073709551615"));
  EXPECT_TRUE(names(error_text([] { jinja::parse_json_value("[123456789012345678901234]", "n"); }), "64 bits"));
  EXPECT_TRUE(names(error_text([] { jinja::parse_json_value(std::string(200, '['), "n"); }), "deeper than 100"));
}

}  // namespace
}  // namespace zeepo
