#include "zeepo/serve/openai_request.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>

#include "zeepo/chat/json_text.h"
#include "zeepo/data/json_value.h"
#include "zeepo/infer/generator.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

constexpr int kBadRequest = 400, kNotFound = 404;
constexpr std::size_t kMostStops = 16, kLongestStop = 1024;
constexpr std::int64_t kMostLikely = 20, kMostCopies = 128;

double number_in(const JsonValue& body, const char* name, double otherwise, double low, double high) {
  const auto found = body.find(name);
  if (!found) return otherwise;
  if (!found->raw().is_number()) throw BadRequest(kBadRequest, "{}: must be a number", name);
  const double number = found->raw().get<double>();
  if (!(number >= low && number <= high))
    throw BadRequest(kBadRequest, "{}: {} must be from {} to {}", name, found->raw().dump(), low, high);
  return number;
}

std::int64_t whole_in(const JsonValue& body, const char* name, std::int64_t otherwise, std::int64_t low,
                      std::int64_t high) {
  const auto found = body.find(name);
  return found ? found->integer(low, high) : otherwise;
}

bool flag_in(const JsonValue& body, const char* name) {
  const auto found = body.find(name);
  return found && found->boolean();
}

// Values that ask for nothing are fine.
void refuse_unsupported(const JsonValue& body) {
  for (const char* name : {"presence_penalty", "frequency_penalty"})
    if (number_in(body, name, 0, -2, 2) != 0) throw BadRequest(kBadRequest, "{}: zeepo has only 0", name);
  for (const char* name : {"logit_bias", "tools", "functions"})
    if (const auto found = body.find(name); found && !found->raw().empty())
      throw BadRequest(kBadRequest, "{}: zeepo does not support it", name);
  for (const char* name : {"suffix", "audio", "prediction"})
    if (body.find(name)) throw BadRequest(kBadRequest, "{}: zeepo does not support it", name);
  if (const auto format = body.find("response_format"); format && format->type() != "text")
    throw BadRequest(kBadRequest, "response_format: zeepo has only the type text");
}

std::vector<std::string> stops_in(const JsonValue& body) {
  const auto found = body.find("stop");
  if (!found) return {};
  std::vector<std::string> stops;
  if (found->is_string())
    stops.push_back(found->string());
  else
    for (const JsonValue& item : found->items()) stops.push_back(item.string());
  if (stops.size() > kMostStops) throw BadRequest(kBadRequest, "stop: at most {} strings", kMostStops);
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > kLongestStop)
      throw BadRequest(kBadRequest, "stop: each string has from 1 to {} bytes", kLongestStop);
  return stops;
}

std::uint64_t fresh_seed() {
  static thread_local std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

JsonValue checked(const nlohmann::json& object, const ServedModel& model) {
  const JsonValue body(object, "request");
  if (const auto name = body.find("model"); name && name->string() != model.name)
    throw BadRequest(kNotFound, "model {}: this server has {}", shown(name->string()), shown(model.name));
  refuse_unsupported(body);
  return body;
}

OpenAiRequest common(const JsonValue& body) {
  OpenAiRequest request;
  request.copies = whole_in(body, "n", 1, 1, kMostCopies);
  if (const auto best = body.find("best_of"); best && best->integer(1, kMostCopies) != request.copies)
    throw BadRequest(kBadRequest, "best_of: zeepo has only n of them");
  constexpr double kHottest = 2;
  request.sampling.temperature = static_cast<float>(number_in(body, "temperature", 1, 0, kHottest));
  request.sampling.top_p = static_cast<float>(number_in(body, "top_p", 1, 0, 1));
  if (request.sampling.top_p == 0) request.sampling.top_p = std::numeric_limits<float>::min();  // the most likely one
  request.sampling.top_k = whole_in(body, "top_k", 0, -1, std::numeric_limits<std::int32_t>::max());
  request.sampling.top_k = std::max<std::int64_t>(0, request.sampling.top_k);
  const auto seed = body.find("seed");
  request.sampling.seed = seed ? static_cast<std::uint64_t>(seed->integer(std::numeric_limits<std::int64_t>::min(),
                                                                          std::numeric_limits<std::int64_t>::max()))
                               : fresh_seed();
  request.stop = stops_in(body);
  request.stream = flag_in(body, "stream");
  request.ignore_eos = flag_in(body, "ignore_eos");
  if (const auto options = body.find("stream_options")) request.include_usage = flag_in(*options, "include_usage");
  return request;
}

// How many tokens may follow the longest prompt.
std::int64_t room_after(const OpenAiRequest& request, const ServedModel& model) {
  std::size_t longest = 0;
  for (const auto& prompt : request.prompts) longest = std::max(longest, prompt.size());
  return std::min(model.config.max_positions, model.positions) - static_cast<std::int64_t>(longest);
}

void check_prompts(const OpenAiRequest& request, const ServedModel& model) {
  if (request.sequences() > model.most_sequences)
    throw BadRequest(kBadRequest, "{} texts asked for, this server runs at most {} at a time", request.sequences(),
                     model.most_sequences);
  const std::int64_t positions = std::min(model.config.max_positions, model.positions);
  const std::int64_t room = room_after(request, model);
  if (room < 0)
    throw BadRequest(kBadRequest, "prompt: {} tokens, but there is room for {}", positions - room, positions);
  if (room < request.max_new_tokens)
    throw BadRequest(kBadRequest, "max_tokens: {} after a prompt of {} tokens, but there is room for {} positions",
                     request.max_new_tokens, positions - room, positions);
  for (const auto& prompt : request.prompts) {
    if (prompt.empty()) throw BadRequest(kBadRequest, "prompt: is empty; give at least one token");
    check_prompt(model.config, prompt, 0);
  }
}

std::int32_t id_in(const JsonValue& value) {
  return static_cast<std::int32_t>(value.integer(0, std::numeric_limits<std::int32_t>::max()));
}

struct Prompt {
  std::vector<std::int32_t> ids;
  std::optional<std::string> text;  // where it was given
};

Prompt prompt_of(const JsonValue& value, const ServedModel& model) {
  if (value.is_string()) return {model.tokenizer.encode(value.string(), AddSpecial::yes), value.string()};
  Prompt prompt;
  for (const JsonValue& id : value.items()) prompt.ids.push_back(id_in(id));
  return prompt;
}

// A text, ids, or a list of these.
std::vector<Prompt> prompts_in(const JsonValue& body, const ServedModel& model) {
  const JsonValue prompt = body.at("prompt");
  if (prompt.is_string()) return {prompt_of(prompt, model)};
  const std::vector<JsonValue> items = prompt.items();
  if (items.empty()) throw BadRequest(kBadRequest, "prompt: is empty");
  if (items.front().raw().is_number()) return {prompt_of(prompt, model)};
  if (static_cast<std::int64_t>(items.size()) > model.most_sequences)
    throw BadRequest(kBadRequest, "prompt: {} of them, this server runs at most {} at a time", items.size(),
                     model.most_sequences);
  std::vector<Prompt> prompts;
  for (const JsonValue& item : items) prompts.push_back(prompt_of(item, model));
  return prompts;
}

// Messages whose content is a list of texts get one text: templates know no other.
nlohmann::ordered_json plain_messages(const nlohmann::ordered_json& messages) {
  if (!messages.is_array() || messages.empty()) throw BadRequest(kBadRequest, "messages: must be a list with messages");
  nlohmann::ordered_json plain = messages;
  for (nlohmann::ordered_json& message : plain) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      throw BadRequest(kBadRequest, "messages: each must be an object with a role");
    if (!message.contains("content") || message["content"].is_null()) message["content"] = "";
    if (message["content"].is_string()) continue;
    std::string text;
    if (!message["content"].is_array()) throw BadRequest(kBadRequest, "messages: content must be a text");
    for (const auto& part : message["content"]) {
      if (!part.is_object() || part.value("type", nlohmann::ordered_json()) != "text" || !part.contains("text") ||
          !part["text"].is_string())
        throw BadRequest(kBadRequest, "messages: content has a part that is not a text");
      text += part["text"].get_ref<const std::string&>();
    }
    message["content"] = text;
  }
  return plain;
}

}  // namespace

std::int64_t OpenAiRequest::prompt_tokens() const {
  std::int64_t tokens = 0;
  for (const auto& prompt : prompts) tokens += static_cast<std::int64_t>(prompt.size());
  return tokens;
}

OpenAiRequest parse_completion(std::string_view text, const ServedModel& model) {
  const nlohmann::json object = parse_json_object(text, "request");
  const JsonValue body = checked(object, model);
  OpenAiRequest request = common(body);
  const bool echo = flag_in(body, "echo");
  for (Prompt& prompt : prompts_in(body, model)) {
    if (echo) request.echoes.push_back(prompt.text ? *prompt.text : model.tokenizer.decode(prompt.ids, Special::skip));
    request.prompts.push_back(std::move(prompt.ids));
  }
  constexpr std::int64_t kDefault = 16;  // OpenAI's
  request.max_new_tokens = whole_in(body, "max_tokens", kDefault, 0, std::numeric_limits<std::int32_t>::max());
  request.likelihoods = static_cast<int>(whole_in(body, "logprobs", -1, 0, kMostLikely));
  check_prompts(request, model);
  return request;
}

OpenAiRequest parse_chat(std::string_view text, const ServedModel& model) {
  const nlohmann::json object = parse_json_object(text, "request");
  const JsonValue body = checked(object, model);
  if (!model.chat)
    throw BadRequest(kBadRequest, "the model has no chat template; use /v1/completions, or add chat_template.jinja");
  if (flag_in(body, "echo")) throw BadRequest(kBadRequest, "echo: is for /v1/completions");
  OpenAiRequest request = common(body);
  request.chat = true;
  (void)body.at("messages");
  // Read again, since templates may see the order of keys.
  const auto messages = plain_messages(nlohmann::ordered_json::parse(text).at("messages"));
  ChatOptions options;
  options.add_generation_prompt = true;
  if (const auto variables = body.find("chat_template_kwargs")) {
    (void)variables->object();
    options.variables = jinja::parse_json_value(variables->raw().dump(), "chat_template_kwargs");
  }
  const auto rendered = model.chat->render(jinja::parse_json_value(messages.dump(), "messages"), options);
  request.prompts = {model.tokenizer.encode(rendered.text, AddSpecial::no)};
  // All of a long context would take the places of others, and few answers are that long.
  constexpr std::int64_t kUsualAnswer = 4096;
  const char* const limit = body.find("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  request.max_new_tokens = body.find(limit) ? whole_in(body, limit, 0, 0, std::numeric_limits<std::int32_t>::max())
                                            : std::clamp<std::int64_t>(room_after(request, model), 0, kUsualAnswer);
  const auto most_likely = static_cast<int>(whole_in(body, "top_logprobs", 0, 0, kMostLikely));
  if (flag_in(body, "logprobs"))
    request.likelihoods = most_likely;
  else if (most_likely > 0)
    throw BadRequest(kBadRequest, "top_logprobs: is for logprobs true");
  check_prompts(request, model);
  return request;
}

}  // namespace zeepo
