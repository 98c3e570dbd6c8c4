// The OpenAI HTTP interface over a queue of texts: /v1/completions, /v1/chat/completions, /v1/models, /health, /metrics
// and the page.
//
// Handlers run on the server's threads; the model's thread serves the queue. What a client does harms no other: bodies,
// times and places are bounded, and a client that goes away frees its place.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "zeepo/http/http_server.h"
#include "zeepo/serve/openai_request.h"
#include "zeepo/serve/text_queue.h"

namespace zeepo {

// Keys that clients must show; none: everybody may.
class ApiKeys {
 public:
  ApiKeys() = default;
  // One a line; spaces around it and empty lines do not count. Throws Error for a file without any.
  static ApiKeys load(const std::filesystem::path& file);
  // `header`: "Bearer KEY". Takes the same time however much of a key is right.
  bool admit(const std::string& header) const;

 private:
  std::vector<std::string> keys_;
};

class OpenAiServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 8000;
    std::int64_t max_batch = 32, max_queue = 128;
    std::size_t body_bytes = std::size_t{4} << 20;
    double request_seconds = 10, write_seconds = 30;
    ApiKeys keys = {};
  };

  // Takes the port; serves from start() on. Borrows model and queue. `about` is shown on the page: where the weights
  // live.
  OpenAiServer(const Options& options, const ServedModel& model, TextQueue& queue, nlohmann::ordered_json about);

  void start() { server_.start(); }
  // Waits until every answer that has begun is written, at most as long as a write may take.
  void finish() { server_.finish_answers(options_.write_seconds); }
  std::string address() const { return server_.address(); }

 private:
  enum class Needs { nothing, key };
  using Answer = HttpResponse (OpenAiServer::*)(const HttpRequest&);
  HttpServer::Handler guarded(Needs needs, Answer how);
  HttpResponse health(const HttpRequest& request);
  HttpResponse metrics(const HttpRequest& request);
  HttpResponse stats(const HttpRequest& request);
  nlohmann::ordered_json model_json() const;
  HttpResponse models(const HttpRequest& request);
  HttpResponse the_model(const HttpRequest& request);
  HttpResponse page(const HttpRequest& request);
  HttpResponse completions(const HttpRequest& request);
  HttpResponse chat(const HttpRequest& request);
  HttpResponse answer(const HttpRequest& request, OpenAiRequest asked);

  const Options options_;
  const ServedModel& model_;
  TextQueue& queue_;
  const nlohmann::ordered_json about_;
  const std::int64_t created_;
  std::atomic<std::uint64_t> answers_{0};
  HttpServer server_;  // ends before what its handlers use
};

}  // namespace zeepo
