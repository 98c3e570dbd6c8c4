// The body of /v1/completions and /v1/chat/completions, as OpenAI has them. The body is not trusted.
//
// What zeepo does not do is refused by name where it would change the answer; keys that OpenAI does not have either are
// left alone, apart from top_k and ignore_eos.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/chat/chat_template.h"
#include "zeepo/data/tokenizer.h"
#include "zeepo/infer/sampling.h"
#include "zeepo/model/config.h"

namespace zeepo {

// What a client did wrong, as a status and a message for it.
class BadRequest : public Error {
 public:
  template <class... Args>
  explicit BadRequest(int status, fmt::format_string<Args...> format, Args&&... args)
      : Error(format, std::forward<Args>(args)...), status_(status) {}
  int status() const { return status_; }

 private:
  int status_;
};

// What requests are read with.
struct ServedModel {
  std::string name;
  ModelConfig config;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;
  std::int64_t positions = 0;       // of the KV cache: a request may need as many
  std::int64_t most_sequences = 0;  // that a request may ask for
};

struct OpenAiRequest {
  bool chat = false;
  std::vector<std::vector<std::int32_t>> prompts;
  std::vector<std::string> echoes;  // what each answer begins with, by prompt; none: with its own text
  std::int64_t copies = 1;          // "n": of each prompt
  std::int64_t max_new_tokens = 16;
  Sampling sampling;
  std::vector<std::string> stop;
  int likelihoods = -1;  // see TextRequest
  bool stream = false, include_usage = false, ignore_eos = false;

  // Whether the prompts' tokens come with likelihoods, too.
  bool scores_prompts() const { return !echoes.empty() && likelihoods >= 0; }
  std::int64_t sequences() const { return static_cast<std::int64_t>(prompts.size()) * copies; }
  std::int64_t prompt_tokens() const;
};

// Throws BadRequest, or Error for what is wrong with the JSON or the chat template: a 400.
OpenAiRequest parse_completion(std::string_view body, const ServedModel& model);
OpenAiRequest parse_chat(std::string_view body, const ServedModel& model);

}  // namespace zeepo
