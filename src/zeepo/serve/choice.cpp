#include "zeepo/serve/choice.h"

#include <algorithm>
#include <utility>

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t characters_in(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
}

// The bytes of a token that is text; of a part of a character they are not known here.
Json bytes_of(const std::string& text) {
  if (text.find("\xEF\xBF\xBD") != std::string::npos) return nullptr;
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

}  // namespace

Choice::Choice(const Tokenizer& tokenizer, const OpenAiRequest& request)
    : tokenizer_(tokenizer), request_(request), decoder_(tokenizer), stops_(request.stop) {}

std::string Choice::text_of(std::int32_t token) const { return tokenizer_.decode({&token, 1}, Special::keep); }

void Choice::note(const NewToken& made) {
  if (request_.likelihoods < 0) return;
  const std::string text = text_of(made.token);
  if (request_.chat) {
    Json likely = Json::array();
    for (const LikelyToken& other : made.most_likely) {
      const std::string word = text_of(other.token);
      likely.push_back({{"token", word}, {"logprob", other.log_probability}, {"bytes", bytes_of(word)}});
    }
    likelihoods_["content"].push_back({{"token", text},
                                       {"logprob", made.log_probability},
                                       {"bytes", bytes_of(text)},
                                       {"top_logprobs", std::move(likely)}});
    return;
  }
  Json likely = Json::object();
  for (const LikelyToken& other : made.most_likely) likely[text_of(other.token)] = other.log_probability;
  likelihoods_["tokens"].push_back(text);
  likelihoods_["token_logprobs"].push_back(made.log_probability);
  likelihoods_["top_logprobs"].push_back(std::move(likely));
  likelihoods_["text_offset"].push_back(characters_);
}

std::string Choice::add(const NewToken& made) {
  if (ended()) return "";
  ++tokens_;
  note(made);
  const std::string piece = decoder_.push(made.token);
  characters_ += characters_in(piece);
  std::string told = stops_.push(piece);
  if (stops_.met()) finish_reason_ = "stop";
  return told;
}

std::string Choice::end(TextEnd why) {
  if (ended()) return "";
  std::string told = stops_.push(decoder_.finish());
  told += stops_.finish();
  finish_reason_ = why == TextEnd::length && !stops_.met() ? "length" : "stop";
  return told;
}

Json Choice::take_likelihoods() { return std::exchange(likelihoods_, nullptr); }

}  // namespace zeepo
