#include "zeepo/serve/openai_server.h"

#include <ctime>
#include <memory>
#include <random>
#include <utility>

#include "zeepo/base/file.h"
#include "zeepo/serve/answers.h"
#include "zeepo/serve/exchange.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kHeaderBytes = 64 << 10;
constexpr std::int64_t kKeyFileBytes = 1 << 20;

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Of "http://localhost:8000".
std::string host_of_origin(const std::string& origin) {
  const std::size_t begin = origin.find("://");
  if (begin == std::string::npos) return origin;
  const std::string rest = origin.substr(begin + 3);
  if (rest.starts_with('[')) return rest.substr(1, rest.find(']') - 1);
  return rest.substr(0, rest.find(':'));
}

// A thread for every text that may be known, and for those who ask for other things, are refused or say nothing: these
// have a thread each until their time is over. Threads start when they are needed.
HttpServer::Options http_options(const OpenAiServer::Options& options) {
  HttpServer::Options http;
  http.host = options.host;
  http.port = options.port;
  constexpr int kOthers = 1024;
  constexpr std::size_t kWaiting = 1024;
  http.threads = static_cast<int>(options.max_batch + options.max_queue) + kOthers;
  http.waiting = kWaiting;
  http.request_bytes = options.body_bytes + kHeaderBytes;
  http.body_bytes = options.body_bytes;
  http.seconds = options.request_seconds;
  http.write_seconds = options.write_seconds;
  http.fault = fault_answer;
  return http;
}

std::string fresh_id(const char* prefix, std::uint64_t number) {
  static const std::uint64_t run = std::random_device{}();
  return fmt::format("{}-{:08x}{:08x}", prefix, run, number);
}

}  // namespace

ApiKeys ApiKeys::load(const std::filesystem::path& file) {
  const std::string text = read_text(file, kKeyFileBytes);
  ApiKeys keys;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    const std::size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    if (first != std::string::npos) keys.keys_.push_back(line.substr(first, last - first + 1));
    begin = end + 1;
  }
  if (keys.keys_.empty()) throw Error("{}: has no key; write one a line", file.string());
  return keys;
}

bool ApiKeys::admit(const std::string& header) const {
  if (keys_.empty()) return true;
  constexpr std::string_view kScheme = "Bearer ";
  const std::string shown = header.starts_with(kScheme) ? header.substr(kScheme.size()) : "";
  bool found = false;
  for (const std::string& key : keys_) {
    unsigned difference = key.size() == shown.size() ? 0 : 1;
    for (std::size_t i = 0; i < key.size(); ++i)
      difference |= static_cast<unsigned char>(key[i] ^ (i < shown.size() ? shown[i] : '\0'));
    found |= difference == 0;
  }
  return found;
}

OpenAiServer::OpenAiServer(const Options& options, const ServedModel& model, TextQueue& queue, Json about)
    : options_(options),
      model_(model),
      queue_(queue),
      about_(std::move(about)),
      created_(std::time(nullptr)),
      server_(http_options(options)) {
  server_.get("/", guarded(Needs::nothing, &OpenAiServer::page));
  server_.get("/health", guarded(Needs::nothing, &OpenAiServer::health));
  server_.get("/metrics", guarded(Needs::key, &OpenAiServer::metrics));
  server_.get("/stats", guarded(Needs::key, &OpenAiServer::stats));
  server_.get("/v1/models", guarded(Needs::key, &OpenAiServer::models));
  server_.get("/v1/models/" + model.name, guarded(Needs::key, &OpenAiServer::the_model));
  server_.post("/v1/completions", guarded(Needs::key, &OpenAiServer::completions));
  server_.post("/v1/chat/completions", guarded(Needs::key, &OpenAiServer::chat));
}

// A page of another site may have a name that leads here, or send what its visitor did not mean to send.
HttpServer::Handler OpenAiServer::guarded(Needs needs, Answer how) {
  return [this, needs, how](const HttpRequest& request) -> HttpResponse {
    if (is_loopback(options_.host) && !is_loopback(request.host))
      return error_answer(403, "this server is for this machine alone: ask for it as localhost");
    if (!request.origin.empty() && host_of_origin(request.origin) != request.host)
      return error_answer(403, "pages of other sites may not ask this server");
    if (needs == Needs::key && !options_.keys.admit(request.authorization))
      return error_answer(401, "the API key is missing or wrong; send it as Authorization: Bearer KEY");
    try {
      return (this->*how)(request);
    } catch (const BadRequest& bad) {
      return error_answer(bad.status(), bad.what());
    } catch (const Error& error) {
      return error_answer(400, error.what());
    }
  };
}

HttpResponse OpenAiServer::health(const HttpRequest&) {
  if (queue_.draining()) return json_answer({{"status", "draining"}}, 503);
  return json_answer({{"status", "ok"}});
}

HttpResponse OpenAiServer::metrics(const HttpRequest&) {
  return {200, "text/plain; version=0.0.4", prometheus_text(queue_.counts())};
}

HttpResponse OpenAiServer::stats(const HttpRequest&) {
  Json stats = counts_json(queue_.counts());
  stats["about"] = about_;
  return json_answer(stats);
}

Json OpenAiServer::model_json() const {
  return {{"id", model_.name},
          {"object", "model"},
          {"created", created_},
          {"owned_by", "zeepo"},
          {"max_model_len", std::min(model_.config.max_positions, model_.positions)}};
}

HttpResponse OpenAiServer::models(const HttpRequest&) {
  return json_answer({{"object", "list"}, {"data", Json::array({model_json()})}});
}

HttpResponse OpenAiServer::the_model(const HttpRequest&) { return json_answer(model_json()); }

HttpResponse OpenAiServer::page(const HttpRequest&) {
  return {200, "text/html; charset=utf-8", std::string(serve_page())};
}

HttpResponse OpenAiServer::completions(const HttpRequest& request) {
  return answer(request, parse_completion(request.body, model_));
}

HttpResponse OpenAiServer::chat(const HttpRequest& request) {
  return answer(request, parse_chat(request.body, model_));
}

HttpResponse OpenAiServer::answer(const HttpRequest& request, OpenAiRequest asked) {
  std::vector<TextRequest> texts;
  for (const auto& prompt : asked.prompts)
    for (std::int64_t copy = 0; copy < asked.copies; ++copy) {
      TextRequest text;
      text.prompt = prompt;
      text.options.max_new_tokens = asked.max_new_tokens;
      text.options.sampling = asked.sampling;
      text.options.sampling.seed += static_cast<std::uint64_t>(copy);
      if (!asked.ignore_eos) text.options.stop = model_.config.eos;
      text.likelihoods = asked.likelihoods;
      text.scores_prompt = asked.scores_prompts();
      texts.push_back(std::move(text));
    }
  TextQueue::Submitted submitted = queue_.submit(std::move(texts));
  if (submitted.refusal == TextQueue::Refusal::draining)
    return error_answer(503, "the server is about to end and takes no more requests");
  if (submitted.refusal == TextQueue::Refusal::full)
    return error_answer(429, "too many requests are waiting; try again later");
  const bool streams = asked.stream;
  const std::string id = fresh_id(asked.chat ? "chatcmpl" : "cmpl", ++answers_);
  const auto exchange = std::make_shared<Exchange>(model_, std::move(asked), std::move(submitted.tickets), id);
  if (streams) {
    HttpResponse response{200, "text/event-stream", ""};
    response.stream = [exchange, gone = request.gone](const HttpWriter& write) { exchange->stream(write, gone); };
    return response;
  }
  try {
    const auto whole = exchange->whole(request.gone);
    return whole ? json_answer(*whole) : error_answer(400, "the client has gone");
  } catch (const Error& error) {
    return error_answer(500, error.what());
  }
}

}  // namespace zeepo
