// One choice of an OpenAI answer: tokens to pieces of text, with stop strings, reason of its end and likelihoods.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "zeepo/data/tokenizer.h"
#include "zeepo/infer/batch_generator.h"
#include "zeepo/serve/openai_request.h"
#include "zeepo/serve/stop_strings.h"

namespace zeepo {

class Choice {
 public:
  // Borrows both. `number` counts the choices of the request.
  Choice(const Tokenizer& tokenizer, const OpenAiRequest& request, std::size_t number);

  // A token of the prompt that has been scored. The prompt's text comes with the first new token, or at the end.
  void add_prompt(const NewToken& token);
  // What the token lets be told: whole characters that are no beginning of a stop string. Nothing once it has ended.
  std::string add(const NewToken& made);
  // No token follows: what was held back.
  std::string end(TextEnd why);

  bool ended() const { return !finish_reason_.empty(); }
  // "stop" or "length"; empty until it has ended.
  const std::string& finish_reason() const { return finish_reason_; }
  std::int64_t tokens() const { return tokens_; }
  // OpenAI's "logprobs" of the tokens since the last call; null where they are not wanted.
  nlohmann::ordered_json take_likelihoods();

 private:
  enum class Likelihood { known, unknown };
  void note(const NewToken& made, Likelihood how = Likelihood::known);
  std::string take_echo();
  nlohmann::ordered_json likely_in_chat(std::int32_t token, float log_probability) const;

  const Tokenizer& tokenizer_;
  const OpenAiRequest& request_;
  StreamDecoder decoder_;
  StopStrings stops_;
  std::string echo_;  // not yet told
  std::string finish_reason_;
  std::int64_t tokens_ = 0, characters_ = 0;
  nlohmann::ordered_json likelihoods_;
};

}  // namespace zeepo
