// A small HTTP server beside other work, which it must not disturb.
//
// Its threads have a low priority and take no signals. A connection carries one request; what a request may send,
// how long it may take and how many may wait are bounded, so that slow or hostile clients cost nothing else. A handler
// runs on one of the server's threads.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace zeepo {

struct HttpRequest {
  std::string host;                          // of the Host header, without its port
  std::map<std::string, std::string> query;  // of ?name=value&...
  std::string authorization, origin;         // of the headers of these names
  std::string body;                          // of a POST
  // Whether the client has closed the connection. While the handler runs, on its thread.
  std::function<bool()> gone = [] { return false; };
};

// Sends a piece of the answer at once. False: the client has gone, or takes nothing any more.
using HttpWriter = std::function<bool(std::string_view)>;

struct HttpResponse {
  int status = 200;
  std::string content_type, body;
  // Instead of the body: called after the handler, on the same thread; the answer ends when it returns.
  std::function<void(const HttpWriter&)> stream = nullptr;
};

// Whether this build has one.
bool has_http_server();

class HttpServer {
 public:
  struct Options {
    std::string host = "127.0.0.1";
    int port = 0;                           // 0: a free one
    int threads = 2;                        // requests at a time
    std::size_t waiting = 16;               // connections; more are closed
    std::size_t request_bytes = 16 * 1024;  // headers and body; no more is read
    double seconds = 10;                    // from the connection to the end of the answer ...
    double write_seconds = 0;               // ... or, where this is not 0, of the request; and this for each write
    std::size_t body_bytes = 0;             // of a POST; one with more is answered with 413
    // The answer to what has none: a path that is not there, a request that cannot be read or does not end (408 when
    // its time is over), a handler that threw. None: half a request may just be closed.
    std::function<HttpResponse(int status)> fault = nullptr;
  };
  using Handler = std::function<HttpResponse(const HttpRequest&)>;

  // Takes the port. Throws Error when it cannot, naming host, port and cause; also where this build has no server.
  explicit HttpServer(const Options& options);
  // Ends what runs; does not wait for clients.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Before start(). The path is taken as it is.
  void get(const std::string& path, Handler handler);
  void post(const std::string& path, Handler handler);
  void start();
  // Waits until every answer whose handler has begun is written, at most this long.
  void finish_answers(double seconds);
  int port() const;
  // "http://127.0.0.1:8080".
  std::string address() const;

 private:
  class Listener;
  std::unique_ptr<Listener> listener_;
};

}  // namespace zeepo
