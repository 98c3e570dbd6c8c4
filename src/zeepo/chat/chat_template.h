// A model's chat template: messages to the text that the model reads.
//
// The template is Jinja, from the model's directory, and is not trusted: whatever it does, it ends with text or an
// Error that names the template and the line. Read-only once made; may be shared by threads.
#pragma once

#include <ctime>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "zeepo/chat/interpreter.h"
#include "zeepo/chat/syntax.h"

namespace zeepo {

struct ChatOptions {
  bool add_generation_prompt = false;  // the assistant's turn begins at the end
  jinja::Value tools = jinja::None{};
  jinja::Value documents = jinja::None{};
  // A dict of further variables for the template, as "chat_template_kwargs".
  jinja::Value variables = jinja::None{};
  std::optional<std::time_t> now = std::nullopt;  // what strftime_now() tells; else the clock's
};

class ChatTemplate {
 public:
  // From chat_template.jinja, else tokenizer_config.json's "chat_template", of several the one named "default". Special
  // tokens come from tokenizer_config.json. Nothing where the directory has neither.
  static std::optional<ChatTemplate> load(const std::filesystem::path& model);
  // `special_tokens`: a dict of "bos_token" and the like. `name` is what errors call the template.
  static ChatTemplate parse(std::string_view source, const std::string& name, jinja::Value special_tokens);

  // `messages`: a list of dicts, as jinja::parse_json_value() reads it.
  jinja::Rendered render(const jinja::Value& messages, const ChatOptions& options = {}) const;
  // Whether it says itself which words are the assistant's.
  bool has_generation_blocks() const { return has_generation_blocks_; }
  const std::string& name() const { return name_; }

 private:
  ChatTemplate(jinja::Body body, std::string name, jinja::Value special_tokens);

  jinja::Body body_;
  std::string name_;
  jinja::Value special_tokens_;
  bool has_generation_blocks_;
};

}  // namespace zeepo
