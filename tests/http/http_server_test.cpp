#include "zeepo/http/http_server.h"

#include <csignal>
#include <deque>
#include <thread>

#include "tests/support/errors.h"
#include "tests/support/http_client.h"

namespace zeepo {
namespace {

HttpServer::Options patient() {
  HttpServer::Options options;
  options.seconds = 1000;  // longer than a test may take
  return options;
}

// What answers "hello NAME" at /hello.
class HttpServing : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_http_server()) GTEST_SKIP() << "this build has no HTTP server";
    start(patient());
  }
  void start(const HttpServer::Options& options) {
    server_ = std::make_unique<HttpServer>(options);
    server_->get("/hello", [](const HttpRequest& request) {
      const auto name = request.query.find("name");
      return HttpResponse{200, "text/plain", "hello " + (name == request.query.end() ? "" : name->second)};
    });
    server_->get("/fails", [](const HttpRequest&) -> HttpResponse { throw Error("this page fails"); });
    server_->start();
  }
  int port() const { return server_->port(); }

  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServing, AnswersWhatItHas) {
  EXPECT_EQ(server_->address(), fmt::format("http://127.0.0.1:{}", port()));
  const HttpAnswer answer = http_get(port(), "/hello?name=a%20b&other=1");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "hello a b");
  EXPECT_TRUE(names(answer.headers, "Content-Type: text/plain", "nosniff"));
  for (const char* path : {"/", "/hello/", "/helloo", "/../hello", "/hel.o"})
    EXPECT_EQ(http_get(port(), path).status, 404);
  EXPECT_EQ(http_get(port(), "/fails").status, 500);
  EXPECT_EQ(http_get(port(), "/hello").status, 200);
}

TEST_F(HttpServing, APortThatIsTakenIsNamed) {
  HttpServer::Options same;
  same.port = port();
  EXPECT_TRUE(names(error_text([&] { const HttpServer second(same); }), fmt::format("127.0.0.1:{}", port()), "in use",
                    "another port"));
  EXPECT_EQ(http_get(port(), "/hello").status, 200);
  same.host = "no.such.host.invalid";
  EXPECT_TRUE(names(error_text([&] { const HttpServer second(same); }), "no.such.host.invalid"));
}

TEST_F(HttpServing, TheEndWaitsForNobody) {
  std::deque<HttpClient> idle;
  for (int i = 0; i < 10; ++i) idle.emplace_back(port()).send(i % 2 == 0 ? "" : "GET /hello HTT");
  server_.reset();
  for (HttpClient& client : idle) EXPECT_EQ(client.receive(), "");
}

TEST_F(HttpServing, MoreConnectionsThanMayWaitAreClosed) {
  const std::size_t places = 2 + HttpServer::Options{}.waiting;
  std::deque<HttpClient> idle;
  for (std::size_t i = 0; i < places + 5; ++i) idle.emplace_back(port());
  for (int i = 0; i < 4; ++i) EXPECT_EQ(HttpClient(port()).receive(), "");  // refused at once
  server_.reset();
}

TEST_F(HttpServing, ARequestWithoutAnEndIsClosed) {
  for (const std::string begin :
       {"", "GET /hello HTTP/1.1\r\nX: ", "GET /hello?", "POST /hello HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n",
        "POST /hello HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"}) {
    HttpClient client(port());
    client.send(begin);
    const std::string piece(4096, 'x');
    for (int sent = 0; sent < 100 && client.send(piece);) ++sent;
    EXPECT_EQ(client.receive().find("hello "), std::string::npos) << begin;  // the server has closed it
  }
  HttpClient many(port());
  many.send("GET /hello HTTP/1.1\r\n");
  for (int sent = 0; sent < 10'000 && many.send("X: y\r\n");) ++sent;
  EXPECT_EQ(many.receive().find("hello "), std::string::npos);
  EXPECT_EQ(http_get(port(), "/hello").status, 200);
}

TEST_F(HttpServing, ASlowClientHasSoMuchTimeAndNoMore) {
  HttpServer::Options hasty;
  hasty.seconds = 0.2;
  server_.reset();
  start(hasty);
  HttpClient client(port());
  client.send("GET /hel");
  EXPECT_EQ(client.receive().find("hello"), std::string::npos);  // closed, perhaps after an error
  EXPECT_EQ(http_get(port(), "/hello").status, 200);
}

TEST_F(HttpServing, AnAnswerIsNeitherMultipliedNorCompressed) {
  std::string ranges = "Range: bytes=0-0";
  while (ranges.size() < 8000) ranges += ",0-0";
  const HttpAnswer answer = http_get(port(), "/hello?name=you", ranges + "\r\nAccept-Encoding: gzip, br\r\n");
  if (answer.status == 200) {
    EXPECT_EQ(answer.body, "hello you");
  }
  EXPECT_LT(answer.body.size(), 1000u);
  EXPECT_EQ(answer.headers.find("Content-Encoding"), std::string::npos);
  EXPECT_EQ(http_get(port(), "/hello?name=you", "Accept-Encoding: gzip, br\r\n").body, "hello you");
}

TEST_F(HttpServing, SignalsStayAsTheyWere) {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace zeepo
