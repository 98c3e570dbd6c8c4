#include "zeepo/http/http_server.h"

#include "zeepo/base/error.h"

namespace zeepo {

bool has_http_server() { return false; }

class HttpServer::Listener {};

HttpServer::HttpServer(const Options& options) {
  throw Error("{}:{}: this build has no HTTP server; install libcpp-httplib-dev and build again", options.host,
              options.port);
}
HttpServer::~HttpServer() = default;
void HttpServer::get(const std::string&, Handler) {}
void HttpServer::post(const std::string&, Handler) {}
void HttpServer::start() {}
void HttpServer::finish_answers(double) {}
int HttpServer::port() const { return 0; }
std::string HttpServer::address() const { return ""; }

}  // namespace zeepo
