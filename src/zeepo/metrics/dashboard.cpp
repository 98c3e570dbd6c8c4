#include "zeepo/metrics/dashboard.h"

#include <charconv>

#include "zeepo/base/error.h"
#include "zeepo/metrics/run_page.h"

namespace zeepo {
namespace {

constexpr std::size_t kInbox = 256;  // events

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1" || host == "localhost"; }

std::int64_t number_in(const HttpRequest& request, const char* name) {
  const auto found = request.query.find(name);
  std::int64_t number = 0;
  if (found == request.query.end()) return 0;
  const std::string& text = found->second;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc{} && end == text.data() + text.size() ? number : 0;
}

HttpServer::Options options_for(const std::string& host, int port) {
  HttpServer::Options options;
  options.host = host;
  options.port = port;
  return options;
}

HttpResponse forbidden() {
  return {403, "text/plain", "This page is for this machine alone: ask for it as localhost.\n"};
}

}  // namespace

Dashboard::Dashboard(const std::string& host, int port, const std::string& title)
    : title_(title), loopback_(is_loopback(host)), server_(options_for(host, port)) {
  server_.get("/", [this](const HttpRequest& request) { return page(request); });
  server_.get("/data", [this](const HttpRequest& request) { return data(request); });
  server_.start();
}

void Dashboard::write(const Event& event) {
  const std::string kind = kind_of(event);
  if (kind == "tune") return;  // which no plot shows
  std::size_t waiting = 0;
  {
    const std::lock_guard lock(inbox_mutex_);
    inbox_.push_back(event);
    waiting = inbox_.size();
  }
  if (waiting < kInbox) return;
  if (const std::unique_lock lock(history_mutex_, std::try_to_lock); lock.owns_lock()) empty_inbox();
}

void Dashboard::empty_inbox() {
  std::vector<Event> events;
  {
    const std::lock_guard lock(inbox_mutex_);
    events.swap(inbox_);
  }
  for (const Event& event : events) history_.take(event);
}

// A page of another site may have a name that leads here, to read what this machine alone may see.
bool Dashboard::welcome(const HttpRequest& request) const { return !loopback_ || is_loopback(request.host); }

HttpResponse Dashboard::page(const HttpRequest& request) const {
  if (!welcome(request)) return forbidden();
  return {200, "text/html; charset=utf-8", live_page(title_)};
}

HttpResponse Dashboard::data(const HttpRequest& request) {
  if (!welcome(request)) return forbidden();
  const std::lock_guard lock(history_mutex_);
  empty_inbox();
  return {200, "application/json", history_.json(number_in(request, "from"), number_in(request, "stride"))};
}

}  // namespace zeepo
