#include "zeepo/chat/chat_template.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"
#include "zeepo/chat/json_text.h"

namespace zeepo {
namespace {

using jinja::Dict;
using jinja::Statement;
using jinja::Value;

constexpr std::int64_t kLargestTemplate = std::int64_t{4} << 20, kLargestConfig = std::int64_t{64} << 20;

bool has_generation(const jinja::Body& body) {
  return std::ranges::any_of(body, [](const Statement& statement) {
    return statement.kind == Statement::Kind::generation || has_generation(statement.body) ||
           has_generation(statement.otherwise) ||
           std::ranges::any_of(statement.branches, [](const auto& branch) { return has_generation(branch.body); });
  });
}

// The text of a token: as it stands, or the "content" of an object.
const std::string* token_text(const Value& token) {
  if (const Dict* object = token.dict()) {
    const Value* content = object->member("content");
    return content ? content->text() : nullptr;
  }
  return token.text();
}

Value special_tokens_of(const Dict& config) {
  Dict tokens;
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"})
    if (const Value* token = config.member(name))
      if (const std::string* text = token_text(*token)) tokens.set(Value(name), *text);
  return make_dict(std::move(tokens));
}

// tokenizer_config.json's template; null where it has none.
const std::string* template_of(const Dict& config, const std::string& name) {
  const Value* found = config.member("chat_template");
  if (found == nullptr || found->is_none()) return nullptr;
  if (const std::string* text = found->text()) return text;
  const jinja::List* list = found->list();
  if (list == nullptr) throw Error("{}.chat_template: is a {}, must be a text or a list", name, type_name(*found));
  for (const Value& item : list->items) {
    const Dict* one = item.dict();
    const Value *label = one ? one->member("name") : nullptr, *text = one ? one->member("template") : nullptr;
    if (label != nullptr && label->text() && *label->text() == "default" && text && text->text()) return text->text();
  }
  throw Error("{}.chat_template: none of the {} templates is named \"default\"", name, list->items.size());
}

}  // namespace

ChatTemplate::ChatTemplate(jinja::Body body, std::string name, Value special_tokens)
    : body_(std::move(body)),
      name_(std::move(name)),
      special_tokens_(std::move(special_tokens)),
      has_generation_blocks_(has_generation(body_)) {}

ChatTemplate ChatTemplate::parse(std::string_view source, const std::string& name, Value special_tokens) {
  if (static_cast<std::int64_t>(source.size()) > kLargestTemplate)
    throw Error("{}: {} bytes, a chat template has at most {}", name, source.size(), kLargestTemplate);
  return {jinja::parse_template(source, name), name, std::move(special_tokens)};
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& model) {
  const auto config_path = model / "tokenizer_config.json", template_path = model / "chat_template.jinja";
  Value config;
  Value tokens = jinja::make_dict({});
  if (file_exists(config_path)) {
    config = jinja::parse_json_value(read_text(config_path, kLargestConfig), config_path.string());
    if (config.dict() == nullptr)
      throw Error("{}: is a {}, must be an object", config_path.string(), type_name(config));
    tokens = special_tokens_of(*config.dict());
  }
  if (file_exists(template_path))
    return parse(read_text(template_path, kLargestTemplate), template_path.string(), std::move(tokens));
  const std::string* source = config.dict() ? template_of(*config.dict(), config_path.string()) : nullptr;
  if (source == nullptr) return std::nullopt;
  return parse(*source, config_path.string() + ": chat_template", std::move(tokens));
}

jinja::Rendered ChatTemplate::render(const Value& messages, const ChatOptions& options) const {
  jinja::Interpreter interpreter(name_, options.now.value_or(std::time(nullptr)));
  for (const Value* variables : {&special_tokens_, &options.variables})
    if (const Dict* dict = variables->dict())
      for (const auto& [key, value] : dict->entries())
        if (const std::string* name = key.text()) interpreter.set(*name, value);
  interpreter.set("messages", messages);
  interpreter.set("tools", options.tools);
  interpreter.set("documents", options.documents);
  interpreter.set("add_generation_prompt", options.add_generation_prompt);
  return interpreter.render(body_);
}

}  // namespace zeepo
