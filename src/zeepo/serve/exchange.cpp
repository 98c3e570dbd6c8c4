#include "zeepo/serve/exchange.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "zeepo/serve/answers.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLook{100};  // between two looks at whether the client is there

std::string event_of(const Json& json) { return "data: " + text_of(json) + "\n\n"; }

}  // namespace

Exchange::Exchange(const ServedModel& model, OpenAiRequest request, std::vector<std::shared_ptr<Ticket>> tickets,
                   std::string id)
    : model_(model),
      request_(std::move(request)),
      tickets_(std::move(tickets)),
      id_(std::move(id)),
      created_(std::time(nullptr)) {
  for (std::size_t i = 0; i < tickets_.size(); ++i)
    choices_.push_back(std::make_unique<Choice>(model.tokenizer, request_, i));
}

Exchange::~Exchange() {
  for (const auto& ticket : tickets_) ticket->abandon();
}

bool Exchange::ended() const {
  return std::ranges::all_of(choices_, [](const auto& choice) { return choice->ended(); });
}

void Exchange::listen(const std::function<void(std::size_t, const std::string&)>& f) {
  auto patience = kLook;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = *choices_[i];
    if (choice.ended()) continue;
    const Ticket::News news = tickets_[i]->wait(patience);
    patience = std::chrono::milliseconds(choices_.size() > 1 ? 2 : 0);
    if (!news.failure.empty()) throw Error("{}", news.failure);
    std::string text;
    for (const NewToken& token : news.prompt) choice.add_prompt(token);
    for (const NewToken& made : news.tokens) text += choice.add(made);
    if (choice.ended()) tickets_[i]->finish();  // a stop string: no more tokens are wanted
    if (news.ended) text += choice.end(*news.ended);
    if (!text.empty() || choice.ended()) f(i, text);
  }
}

Json Exchange::frame(const char* object) const {
  return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_.name}};
}

Json Exchange::usage() const {
  std::int64_t made = 0;
  for (const auto& choice : choices_) made += choice->tokens();
  const std::int64_t prompt = request_.prompt_tokens();
  return {{"prompt_tokens", prompt}, {"completion_tokens", made}, {"total_tokens", prompt + made}};
}

std::optional<Json> Exchange::whole(const std::function<bool()>& gone) {
  std::vector<std::string> texts(choices_.size());
  while (!ended()) {
    if (gone()) return std::nullopt;
    listen([&](std::size_t i, const std::string& text) { texts[i] += text; });
  }
  Json answer = frame(request_.chat ? "chat.completion" : "text_completion");
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Json choice{{"index", i}};
    if (request_.chat)
      choice["message"] = {{"role", "assistant"}, {"content", texts[i]}};
    else
      choice["text"] = texts[i];
    choice["logprobs"] = choices_[i]->take_likelihoods();
    choice["finish_reason"] = choices_[i]->finish_reason();
    answer["choices"].push_back(std::move(choice));
  }
  answer["usage"] = usage();
  return answer;
}

// `delta`: a text, or for a chat an object.
Json Exchange::chunk(std::size_t i, Json delta) {
  Json answer = frame(request_.chat ? "chat.completion.chunk" : "text_completion");
  Json choice{{"index", i}};
  choice[request_.chat ? "delta" : "text"] = std::move(delta);
  choice["logprobs"] = choices_[i]->take_likelihoods();
  choice["finish_reason"] = nullptr;
  answer["choices"] = Json::array({std::move(choice)});
  if (request_.include_usage) answer["usage"] = nullptr;  // the last chunk alone has it
  return answer;
}

void Exchange::stream(const HttpWriter& write, const std::function<bool()>& gone) {
  bool there = true;
  const auto send = [&](const Json& json) { there = there && write(event_of(json)); };
  if (request_.chat)
    for (std::size_t i = 0; i < choices_.size(); ++i) send(chunk(i, {{"role", "assistant"}, {"content", ""}}));
  try {
    while (there && !ended()) {
      listen([&](std::size_t i, const std::string& text) {
        if (!text.empty()) send(chunk(i, request_.chat ? Json{{"content", text}} : Json(text)));
        if (!choices_[i]->ended()) return;
        Json last = chunk(i, request_.chat ? Json(Json::object()) : Json(""));
        last["choices"][0]["finish_reason"] = choices_[i]->finish_reason();
        send(last);
      });
      there = there && !gone();
    }
  } catch (const Error& error) {
    send(error_json("server_error", error.what()));
  }
  if (request_.include_usage) {
    Json last = frame(request_.chat ? "chat.completion.chunk" : "text_completion");
    last["choices"] = Json::array();
    last["usage"] = usage();
    send(last);
  }
  if (there) write("data: [DONE]\n\n");
}

}  // namespace zeepo
