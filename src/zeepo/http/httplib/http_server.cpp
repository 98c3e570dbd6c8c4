#include "zeepo/http/http_server.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <regex>
#include <set>

#include "zeepo/base/error.h"
#include "zeepo/base/start_thread.h"
#include "zeepo/http/httplib/bounded_queue.h"
#include "zeepo/http/httplib/bounded_stream.h"

namespace zeepo {
namespace {

// httplib ignores SIGPIPE in the whole process; BoundedStream does without.
class SigpipeAsItWas {
 public:
  SigpipeAsItWas() { ::sigaction(SIGPIPE, nullptr, &before_); }
  ~SigpipeAsItWas() { ::sigaction(SIGPIPE, &before_, nullptr); }
  SigpipeAsItWas(const SigpipeAsItWas&) = delete;
  SigpipeAsItWas& operator=(const SigpipeAsItWas&) = delete;

 private:
  struct sigaction before_ {};
};

// Threads that are started meanwhile take no signals.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

// The path of a URL as a pattern of httplib's.
std::string literally(const std::string& path) {
  return std::regex_replace(path, std::regex(R"([.*+?^${}()|\[\]\\])"), R"(\$&)");
}

// "[::1]:8080" is ::1, "localhost:8080" localhost.
std::string without_port(const std::string& host) {
  if (host.starts_with('[')) return host.substr(1, host.find(']') - 1);
  return host.substr(0, host.find(':'));
}

HttpRequest request_of(const httplib::Request& request) {
  HttpRequest asked{without_port(request.get_header_value("Host")), {}};
  for (const auto& [name, value] : request.params) asked.query.emplace(name, value);
  return asked;
}

// Ranges would multiply an answer, compression would take time from others.
void plain(httplib::Request& request) {
  request.ranges.clear();
  request.headers.erase("Accept-Encoding");
}

}  // namespace

bool has_http_server() { return true; }

class HttpServer::Listener final : public httplib::Server {
 public:
  explicit Listener(const HttpServer::Options& options) : options_(options) {
    new_task_queue = [this] { return new BoundedQueue(options_.threads, options_.waiting); };
    // SO_REUSEPORT, httplib's default, would share a port that is taken.
    set_socket_options([](socket_t socket) {
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    errno = 0;
    port_ = options.port == 0                          ? bind_to_any_port(options.host)
            : bind_to_port(options.host, options.port) ? options.port
                                                       : -1;
    if (port_ <= 0)
      throw Error("{}:{}: cannot listen there: {}{}", options.host, options.port,
                  errno != 0 ? std::strerror(errno) : "no such host",
                  errno == EADDRINUSE ? "; name another port, or 0 for a free one" : "");
  }
  ~Listener() override { end(); }

  void start() {
    const NoSignals during_start;
    thread_ = start_thread("the HTTP server", [this] {
      constexpr int kLow = 5;                // lower still, and a busy machine would not come to answer
      ::setpriority(PRIO_PROCESS, 0, kLow);  // on Linux of this thread, and of those that it starts
      listen_after_bind();
      left_ = true;
    });
    while (!is_running() && !left_) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  int port() const { return port_; }
  const HttpServer::Options& options() const { return options_; }

 private:
  void end() {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
      for (const int socket : open_) ::shutdown(socket, SHUT_RDWR);
    }
    stop();
    thread_.join();
  }

  bool process_and_close_socket(socket_t socket) override {
    if (BoundedQueue::refusing() || !opened(socket)) {
      ::close(socket);
      return false;
    }
    const auto time = std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(options_.seconds));
    BoundedStream stream(socket, options_.request_bytes, std::chrono::steady_clock::now() + time);
    bool closed = false;
    const bool answered = process_request(stream, true, closed, plain);
    const std::lock_guard lock(mutex_);
    open_.erase(socket);
    ::shutdown(socket, SHUT_RDWR);
    ::close(socket);
    return answered;
  }

  bool opened(int socket) {
    const std::lock_guard lock(mutex_);
    if (!ends_) open_.insert(socket);
    return !ends_;
  }

  const HttpServer::Options options_;
  int port_ = 0;
  std::thread thread_;
  std::atomic<bool> left_{false};
  std::mutex mutex_;
  std::set<int> open_;  // sockets
  bool ends_ = false;
};

HttpServer::HttpServer(const Options& options) {
  const SigpipeAsItWas signals;
  listener_ = std::make_unique<Listener>(options);
}

HttpServer::~HttpServer() = default;

void HttpServer::get(const std::string& path, Handler handler) {
  listener_->Get(literally(path),
                 [handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
                   HttpResponse answer = handler(request_of(request));
                   response.status = answer.status;
                   response.set_header("X-Content-Type-Options", "nosniff");
                   response.set_header("Cache-Control", "no-store");
                   response.set_content(std::move(answer.body), answer.content_type);
                 });
}

void HttpServer::start() { listener_->start(); }

int HttpServer::port() const { return listener_->port(); }

std::string HttpServer::address() const {
  const std::string& host = listener_->options().host;
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port())
                                             : fmt::format("http://[{}]:{}", host, port());
}

}  // namespace zeepo
