// One example for fine-tuning: its tokens, and which of them count in the loss.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/chat/chat_template.h"
#include "zeepo/data/tokenizer.h"

namespace zeepo {

// Tokens one after another that count, or do not.
struct TokenRun {
  std::int64_t tokens;
  bool counts;
};

struct TrainingExample {
  std::vector<std::int32_t> ids;
  std::vector<TokenRun> runs;  // of all ids, in order
};

class ExampleEncoder {
 public:
  // Borrows the tokenizer and the template, which may be null: conversations then are an Error. `end`: of a completion.
  ExampleEncoder(const Tokenizer& tokenizer, const ChatTemplate* chat, std::optional<std::int32_t> end);

  // A line with "messages", or with "prompt" and "completion": texts, or lists of messages. `where` is for the Error.
  TrainingExample encode(const jinja::Value& line, const std::string& where);

 private:
  TrainingExample encode_conversation(const jinja::Value& line, const jinja::Value& messages, std::size_t first_counted,
                                      const std::string& where);
  TrainingExample encode_completion(std::string_view prompt, std::string_view completion);
  TrainingExample encode_ranges(std::string_view text, std::span<const jinja::TextRange> ranges);
  std::vector<std::int32_t> encode_text(std::string_view text);

  const Tokenizer& tokenizer_;
  const ChatTemplate* chat_;
  std::optional<std::int32_t> end_;
  Encoder encoder_;
};

// The parts of a conversation that the assistant writes, from `first_counted` on, and the whole conversation as text.
// By the template's {% generation %} blocks; without any, what each of the assistant's messages adds to the text of
// those before it with the generation prompt, which ends with the end of the turn. Throws Error with the way out where
// that is not what the template does.
jinja::Rendered render_for_training(const ChatTemplate& chat, const jinja::Value& messages, const ChatOptions& options,
                                    std::size_t first_counted, const std::string& where);

}  // namespace zeepo
