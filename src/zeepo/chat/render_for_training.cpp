#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/chat/python_text.h"
#include "zeepo/chat/training_example.h"

namespace zeepo {
namespace {

using jinja::Dict;
using jinja::Rendered;
using jinja::TextRange;
using jinja::Value;

constexpr std::string_view kWayOut =
    "put {% generation %} and {% endgeneration %} around the assistant's words in chat_template.jinja";

bool is_assistants(const Value& message) {
  const Value* role = message.dict()->member("role");
  return role != nullptr && role->text() != nullptr && *role->text() == "assistant";
}

std::string_view content_of(const Value& message) {
  const Value* content = message.dict()->member("content");
  if (content == nullptr || content->text() == nullptr) return {};
  return jinja::strip(*content->text(), jinja::Side::both);
}

class TurnFinder {
 public:
  TurnFinder(const ChatTemplate& chat, const Value& messages, const ChatOptions& options, const std::string& where)
      : chat_(chat), messages_(messages.list()->items), options_(options), where_(where) {
    whole_ = first_messages(messages_.size(), false);
  }

  // The text of [first, end), which the assistant writes. Both texts must be what the whole one begins with.
  TextRange turn(std::size_t first, std::size_t end) const {
    const std::string before = first_messages(first, true), after = first_messages(end, false);
    if (!whole_.starts_with(before))
      refuse(first, "the text before it with the generation prompt is not what the conversation begins with");
    if (after.size() >= before.size() && whole_.starts_with(after)) return {before.size(), after.size()};
    // A template may leave the thoughts of earlier turns out: then the turn is the message and what followed it there.
    const std::string_view content = content_of(messages_[end - 1]);
    const std::size_t at = content.empty() ? std::string::npos : after.rfind(content);
    if (at != std::string::npos && first + 1 == end) {
      const std::string turn = after.substr(at);
      if (std::string_view(whole_).substr(before.size()).starts_with(turn))
        return {before.size(), before.size() + turn.size()};
    }
    refuse(first, "the text up to its end is not what the conversation begins with");
  }

  Rendered take(std::vector<TextRange> ranges) { return {std::move(whole_), std::move(ranges), false}; }

 private:
  [[noreturn]] void refuse(std::size_t message, std::string_view why) const {
    throw Error(
        "{}: which words of messages[{}] are the assistant's? {} writes earlier messages otherwise when later ones"
        " follow: {}; {}, or end the conversation with this message",
        where_, message, chat_.name(), why, kWayOut);
  }
  std::string first_messages(std::size_t count, bool prompt) const {
    ChatOptions options = options_;
    options.add_generation_prompt = prompt;
    const auto end = messages_.begin() + static_cast<std::ptrdiff_t>(count);
    return chat_.render(jinja::make_list({messages_.begin(), end}), options).text;
  }

  const ChatTemplate& chat_;
  const std::vector<Value>& messages_;
  const ChatOptions& options_;
  const std::string& where_;
  std::string whole_;
};

}  // namespace

Rendered render_for_training(const ChatTemplate& chat, const Value& messages, const ChatOptions& options,
                             std::size_t first_counted, const std::string& where) {
  const std::vector<Value>& all = messages.list()->items;
  if (chat.has_generation_blocks() && first_counted == 0) {
    Rendered rendered = chat.render(messages, options);
    if (rendered.generated_elsewhere)
      throw Error("{}: {}: {{% generation %}} inside of a macro or a set is not supported; {}", where, chat.name(),
                  kWayOut);
    return rendered;
  }
  TurnFinder turns(chat, messages, options, where);
  std::vector<TextRange> ranges;
  if (first_counted > 0) {
    ranges.push_back(turns.turn(first_counted, all.size()));
  } else {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (is_assistants(all[i])) ranges.push_back(turns.turn(i, i + 1));
  }
  return turns.take(std::move(ranges));
}

}  // namespace zeepo
