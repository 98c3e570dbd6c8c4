#include "zeepo/chat/training_example.h"

#include <algorithm>
#include <ctime>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using jinja::Dict;
using jinja::List;
using jinja::TextRange;
using jinja::Value;

// What strftime_now() tells while data is prepared: noon of 26 July 2024, the date that Llama's templates have where
// there is no clock. The tokens of a run do not depend on the day. Found out once: mktime() sets the time zone anew,
// which threads must not do together.
std::time_t fixed_time() {
  static const std::time_t fixed = [] {
    std::tm time{};
    time.tm_year = 124;
    time.tm_mon = 6;
    time.tm_mday = 26;
    time.tm_hour = 12;
    time.tm_isdst = -1;
    return std::mktime(&time);
  }();
  return fixed;
}

const Value* member(const Value& line, std::string_view name) {
  const Value* found = line.dict()->member(name);
  return found == nullptr || found->is_none() ? nullptr : found;
}

// A list of objects, as messages are.
const List& messages_in(const Value& value, const std::string& where, std::string_view name) {
  const List* list = value.list();
  if (list == nullptr || list->items.empty())
    throw Error("{}: \"{}\" must be a list of messages, at least one", where, name);
  for (std::size_t i = 0; i < list->items.size(); ++i)
    if (list->items[i].dict() == nullptr || list->items[i].dict()->member("role") == nullptr)
      throw Error("{}: {}[{}] must be an object with a \"role\"", where, name, i);
  return *list;
}

std::size_t common_prefix(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b) {
  return static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

void add_run(std::size_t tokens, bool counts, std::vector<TokenRun>& runs) {
  if (tokens > 0) runs.push_back({static_cast<std::int64_t>(tokens), counts});
}

}  // namespace

ExampleEncoder::ExampleEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat, std::optional<std::int32_t> end)
    : tokenizer_(tokenizer), chat_(chat), end_(end), encoder_(tokenizer) {}

TrainingExample ExampleEncoder::encode(const Value& line, const std::string& where) {
  if (const Value* messages = member(line, "messages")) {
    messages_in(*messages, where, "messages");
    return encode_conversation(line, *messages, 0, where);
  }
  const Value *prompt = member(line, "prompt"), *completion = member(line, "completion");
  if (prompt == nullptr || completion == nullptr)
    throw Error("{}: has neither \"messages\" nor \"prompt\" and \"completion\"", where);
  if (prompt->text() && completion->text()) return encode_completion(*prompt->text(), *completion->text());
  if (prompt->text() || completion->text())
    throw Error("{}: \"prompt\" and \"completion\" must both be text, or both lists of messages", where);
  std::vector<Value> all = messages_in(*prompt, where, "prompt").items;
  const List& rest = messages_in(*completion, where, "completion");
  const std::size_t first = all.size();
  all.insert(all.end(), rest.items.begin(), rest.items.end());
  return encode_conversation(line, jinja::make_list(std::move(all)), first, where);
}

TrainingExample ExampleEncoder::encode_conversation(const Value& line, const Value& messages, std::size_t first_counted,
                                                    const std::string& where) {
  if (chat_ == nullptr)
    throw Error(
        "{}: messages need a chat template, and the model directory has none: give it a chat_template.jinja, "
        "or the data \"text\", or \"prompt\" and \"completion\" as text",
        where);
  ChatOptions options;
  options.now = fixed_time();
  if (const Value* tools = member(line, "tools")) options.tools = *tools;
  if (const Value* variables = member(line, "chat_template_kwargs")) options.variables = *variables;
  try {
    const jinja::Rendered rendered = render_for_training(*chat_, messages, options, first_counted, where);
    return encode_ranges(rendered.text, rendered.generated);
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with(where)) throw;
    throw Error("{}: {}", where, text);
  }
}

TrainingExample ExampleEncoder::encode_completion(std::string_view prompt, std::string_view completion) {
  TrainingExample example{tokenizer_.encode(prompt, AddSpecial::yes), {}};
  const std::size_t before = example.ids.size();
  std::vector<std::int32_t> counted = encode_text(completion);
  if (end_) counted.push_back(*end_);
  example.ids.insert(example.ids.end(), counted.begin(), counted.end());
  add_run(before, false, example.runs);
  add_run(counted.size(), true, example.runs);
  return example;
}

// The tokens are those of the whole text. As a rule they are also those of its parts one after another. Where a token
// lies across an end of a part, it counts if it has any of the assistant's characters.
TrainingExample ExampleEncoder::encode_ranges(std::string_view text, std::span<const TextRange> ranges) {
  TrainingExample example{encode_text(text), {}};
  std::vector<std::int32_t> in_parts;
  const auto add_part = [&](std::size_t begin, std::size_t end, bool counts) {
    const auto ids = encode_text(text.substr(begin, end - begin));
    in_parts.insert(in_parts.end(), ids.begin(), ids.end());
    add_run(ids.size(), counts, example.runs);
  };
  std::size_t done = 0;
  for (const TextRange& range : ranges) {
    add_part(done, range.begin, false);
    add_part(range.begin, range.end, true);
    done = range.end;
  }
  add_part(done, text.size(), false);
  if (in_parts == example.ids) return example;

  example.runs.clear();
  std::size_t placed = 0;
  for (const TextRange& range : ranges) {
    if (range.begin == range.end) continue;
    const auto before = encode_text(text.substr(0, range.begin)), up_to = encode_text(text.substr(0, range.end));
    const std::size_t shared = common_prefix(up_to, example.ids);
    const std::size_t begin = std::max(placed, common_prefix(before, example.ids));
    const std::size_t end = std::max(begin, std::min(shared + (shared < up_to.size() ? 1 : 0), example.ids.size()));
    add_run(begin - placed, false, example.runs);
    add_run(end - begin, true, example.runs);
    placed = end;
  }
  add_run(example.ids.size() - placed, false, example.runs);
  return example;
}

std::vector<std::int32_t> ExampleEncoder::encode_text(std::string_view text) {
  std::vector<std::int32_t> ids;
  encoder_.encode(text, [&](std::span<const std::int32_t> some) { ids.insert(ids.end(), some.begin(), some.end()); });
  return ids;
}

}  // namespace zeepo
