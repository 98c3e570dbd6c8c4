// A hostile chat template: text or an Error, never a crash, and generated parts that lie in the text.
//
// The input is cut at its first zero byte: the template, and JSON for its variable `x`.
#include <cstddef>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/chat/chat_template.h"
#include "zeepo/chat/json_text.h"
#include "zeepo/data/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace zeepo;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t cut = std::min(input.find('\0'), input.size());
  const std::string_view source = input.substr(0, cut), given = input.substr(std::min(cut + 1, input.size()));
  static const jinja::Value messages = jinja::parse_json_value(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "é"}]},
          {"role": "assistant", "content": " <think>a</think> b\n", "tool_calls": [{"function": {"name": "f",
           "arguments": {"b": [1, 2.5, null, true], "a": "x"}}}]}])",
      "messages");
  try {
    const ChatTemplate chat = ChatTemplate::parse(source, "input", jinja::make_dict({}));
    ChatOptions options{.add_generation_prompt = true, .now = 0};
    jinja::Dict variables;
    try {
      variables.set(jinja::Value("x"), jinja::parse_json_value(given, "x"));
    } catch (const Error&) {
    }
    options.variables = jinja::make_dict(std::move(variables));
    const jinja::Rendered rendered = chat.render(messages, options);
    if (valid_utf8_prefix(rendered.text) != rendered.text.size()) __builtin_trap();
    for (const auto& [begin, end] : rendered.generated)
      if (begin > end || end > rendered.text.size()) __builtin_trap();
  } catch (const Error&) {
  }
  return 0;
}
