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

constexpr int kUnreadable = 400, kTooLate = 408, kTooLarge = 413, kBacklog = 1024;

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

// Of the request that this thread handles.
thread_local BoundedStream* connection = nullptr;

HttpRequest request_of(const httplib::Request& request) {
  HttpRequest asked;
  asked.host = without_port(request.get_header_value("Host"));
  for (const auto& [name, value] : request.params) asked.query.emplace(name, value);
  asked.authorization = request.get_header_value("Authorization");
  asked.origin = request.get_header_value("Origin");
  asked.body = request.body;
  if (BoundedStream* const stream = connection) asked.gone = [stream] { return stream->closed_by_client(); };
  return asked;
}

void set_answer(HttpResponse answer, httplib::Response& response) {
  response.status = answer.status;
  response.set_header("X-Content-Type-Options", "nosniff");
  response.set_header("Cache-Control", "no-store");
  if (!answer.stream) return response.set_content(std::move(answer.body), answer.content_type);
  response.set_chunked_content_provider(answer.content_type,
                                        [stream = std::move(answer.stream)](std::size_t, httplib::DataSink& sink) {
                                          bool taken = true;
                                          stream([&](std::string_view piece) {
                                            if (taken && !piece.empty()) taken = sink.write(piece.data(), piece.size());
                                            return taken;
                                          });
                                          if (taken) sink.done();
                                          return taken;
                                        });
}

// Of a request that could not be read to its end.
int status_of_half(const BoundedStream& stream) {
  if (stream.overrun()) return kTooLarge;
  return stream.late() ? kTooLate : kUnreadable;
}

const char* reason_of(int status) {
  if (status == kTooLarge) return "Payload Too Large";
  return status == kTooLate ? "Request Timeout" : "Bad Request";
}

std::chrono::steady_clock::duration duration_of(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

// Ranges would multiply an answer, compression would take time from others. Bodies are taken as they are: httplib would
// expand compressed ones without a limit, and take forms apart, of which it refuses those above 8 KiB.
void plain(httplib::Request& request) {
  request.ranges.clear();
  for (const char* name : {"Accept-Encoding", "Content-Encoding", "Content-Type"}) request.headers.erase(name);
}

}  // namespace

bool has_http_server() { return true; }

class HttpServer::Listener final : public httplib::Server {
 public:
  explicit Listener(const HttpServer::Options& options) : options_(options) {
    new_task_queue = [this] { return new BoundedQueue(options_.threads, options_.waiting); };
    // SO_REUSEPORT, httplib's default, would share a port that is taken.
    int listening = -1;
    set_socket_options([&listening](socket_t socket) {
      listening = socket;
      const int yes = 1;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    if (options_.body_bytes > 0) set_payload_max_length(options_.body_bytes);
    if (options_.fault) answer_faults();
    errno = 0;
    port_ = options.port == 0                          ? bind_to_any_port(options.host)
            : bind_to_port(options.host, options.port) ? options.port
                                                       : -1;
    if (port_ <= 0)
      throw Error("{}:{}: cannot listen there: {}{}", options.host, options.port,
                  errno != 0 ? std::strerror(errno) : "no such host",
                  errno == EADDRINUSE ? "; name another port, or 0 for a free one" : "");
    // httplib lets five connections wait to be taken; of many that come at once the rest would be lost.
    ::listen(listening, kBacklog);
    set_socket_options([](socket_t) {});
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

  // On the thread of the request.
  void begin_answer() {
    if (connection != nullptr && connection->begin_answer()) ++answering_;
  }
  void finish_answers(double seconds) const {
    const auto end = std::chrono::steady_clock::now() + duration_of(seconds);
    while (answering_ > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  int port() const { return port_; }
  const HttpServer::Options& options() const { return options_; }

 private:
  // httplib calls the first for every answer from 400 on.
  void answer_faults() {
    set_error_handler([this](const httplib::Request&, httplib::Response& response) {
      if (!response.body.empty()) return;
      if (connection != nullptr && response.status == kUnreadable) response.status = status_of_half(*connection);
      if (connection != nullptr && response.status == kTooLarge) connection->set_overrun();
      set_answer(options_.fault(response.status), response);
    });
    set_exception_handler([this](const httplib::Request&, httplib::Response& response, std::exception_ptr) {
      constexpr int kInternal = 500;
      set_answer(options_.fault(kInternal), response);
    });
  }

  // httplib closes a connection whose request line does not end.
  void answer_half(BoundedStream& stream) {
    const HttpResponse answer = options_.fault(status_of_half(stream));
    const std::string text =
        fmt::format("HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                    answer.status, reason_of(answer.status), answer.content_type, answer.body.size(), answer.body);
    (void)stream.httplib::Stream::write(text);  // who sends half a request may be gone
  }

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
    BoundedStream stream(socket, options_.request_bytes,
                         std::chrono::steady_clock::now() + duration_of(options_.seconds));
    if (options_.write_seconds > 0) stream.set_write_time(duration_of(options_.write_seconds));
    connection = &stream;
    bool closed = false;
    const bool answered = process_request(stream, true, closed, plain);
    connection = nullptr;
    if (!answered && stream.received() && !stream.written() && options_.fault) answer_half(stream);
    if (stream.overrun()) stream.linger();
    if (stream.answer_begun()) --answering_;
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
  std::atomic<int> answering_{0};
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
                 [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
                   listener_->begin_answer();
                   set_answer(handler(request_of(request)), response);
                 });
}

void HttpServer::post(const std::string& path, Handler handler) {
  listener_->Post(literally(path),
                  [this, handler = std::move(handler)](const httplib::Request& request, httplib::Response& response) {
                    listener_->begin_answer();
                    set_answer(handler(request_of(request)), response);
                  });
}

void HttpServer::start() { listener_->start(); }

void HttpServer::finish_answers(double seconds) { listener_->finish_answers(seconds); }

int HttpServer::port() const { return listener_->port(); }

std::string HttpServer::address() const {
  const std::string& host = listener_->options().host;
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port())
                                             : fmt::format("http://[{}]:{}", host, port());
}

}  // namespace zeepo
