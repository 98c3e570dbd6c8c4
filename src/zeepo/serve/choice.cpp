#include "zeepo/serve/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t characters_in(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

Json list_of(const std::string& bytes) {
  Json list = Json::array();
  for (const char c : bytes) list.push_back(static_cast<unsigned char>(c));
  return list;
}

// A token of /v1/completions: its text, or for a part of a character its bytes, as OpenAI writes them. Names differ
// where tokens do.
std::string named(const std::string& bytes) {
  if (valid_utf8_prefix(bytes) == bytes.size()) return bytes;
  std::string name = "bytes:";
  for (const char c : bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return name;
}

}  // namespace

Choice::Choice(const Tokenizer& tokenizer, const OpenAiRequest& request, std::size_t number)
    : tokenizer_(tokenizer), request_(request), decoder_(tokenizer), stops_(request.stop) {
  if (request.echoes.empty()) return;
  const std::size_t prompt = number / static_cast<std::size_t>(request.copies);
  echo_ = request.echoes.at(prompt);
  NewToken first;
  first.token = request.prompts.at(prompt).at(0);
  note(first, Likelihood::unknown);  // nothing is before it
  characters_ += characters_in(decoder_.push(first.token));
}

Json Choice::likely_in_chat(std::int32_t token, float log_probability) const {
  return {{"token", tokenizer_.decode({&token, 1}, Special::keep)},
          {"logprob", log_probability},
          {"bytes", list_of(tokenizer_.bytes(token))}};
}

void Choice::note(const NewToken& made, Likelihood how) {
  if (request_.likelihoods < 0) return;
  if (request_.chat) {
    Json one = likely_in_chat(made.token, made.log_probability);
    one["top_logprobs"] = Json::array();
    for (const LikelyToken& other : made.most_likely)
      one["top_logprobs"].push_back(likely_in_chat(other.token, other.log_probability));
    likelihoods_["content"].push_back(std::move(one));
    return;
  }
  const std::string text = named(tokenizer_.bytes(made.token));
  Json likely = Json::object();
  for (const LikelyToken& other : made.most_likely)
    likely[named(tokenizer_.bytes(other.token))] = other.log_probability;
  likely[text] = made.log_probability;  // the token itself is always among them
  const bool known = how == Likelihood::known;
  likelihoods_["tokens"].push_back(text);
  likelihoods_["token_logprobs"].push_back(known ? Json(made.log_probability) : Json());
  likelihoods_["top_logprobs"].push_back(known ? std::move(likely) : Json());
  likelihoods_["text_offset"].push_back(characters_);
}

void Choice::add_prompt(const NewToken& token) {
  note(token);
  characters_ += characters_in(decoder_.push(token.token));
}

// The text's own characters begin after those of the prompt.
std::string Choice::take_echo() {
  if (echo_.empty()) return "";
  (void)decoder_.finish();
  characters_ = characters_in(echo_);
  return std::exchange(echo_, {});
}

std::string Choice::add(const NewToken& made) {
  if (ended()) return "";
  std::string told = take_echo();
  ++tokens_;
  note(made);
  const std::string piece = decoder_.push(made.token);
  characters_ += characters_in(piece);
  told += stops_.push(piece);
  if (stops_.met()) finish_reason_ = "stop";
  return told;
}

std::string Choice::end(TextEnd why) {
  if (ended()) return "";
  std::string told = take_echo();
  told += stops_.push(decoder_.finish());
  told += stops_.finish();
  finish_reason_ = why == TextEnd::length && !stops_.met() ? "length" : "stop";
  return told;
}

Json Choice::take_likelihoods() { return std::exchange(likelihoods_, nullptr); }

}  // namespace zeepo
