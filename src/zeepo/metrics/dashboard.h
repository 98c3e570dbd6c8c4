// `--dashboard PORT`: a live page of the run.
//
// write() never waits for a client: events wait in an inbox until a request, or a free moment, adds them to the
// history.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "zeepo/http/http_server.h"
#include "zeepo/metrics/event_sink.h"
#include "zeepo/metrics/run_history.h"

namespace zeepo {

class Dashboard final : public EventSink {
 public:
  // Serves from now on. Throws Error when the port cannot be taken.
  Dashboard(const std::string& host, int port, const std::string& title);
  std::string name() const override { return "--dashboard " + server_.address(); }
  void write(const Event& event) override;
  std::string address() const { return server_.address(); }

 private:
  HttpResponse page(const HttpRequest& request) const;
  HttpResponse data(const HttpRequest& request);
  // With history_mutex_ held.
  void empty_inbox();
  bool welcome(const HttpRequest& request) const;

  const std::string title_;
  const bool loopback_;
  std::mutex inbox_mutex_, history_mutex_;
  std::vector<Event> inbox_;
  RunHistory history_;
  HttpServer server_;  // ends before what its handlers use
};

}  // namespace zeepo
