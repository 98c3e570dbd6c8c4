#include "zeepo/http/http_server.h"

#include <atomic>
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

// What takes bodies, and answers in pieces.
class HttpPosting : public testing::Test {
 protected:
  static constexpr std::size_t kBody = 1000;

  void SetUp() override {
    if (!has_http_server()) GTEST_SKIP() << "this build has no HTTP server";
    start(HttpServer::Options{}.seconds);
  }
  // With so much time for a request, and room for its body.
  void start(double seconds, std::size_t body_bytes = kBody) {
    server_.reset();
    HttpServer::Options options;
    options.threads = 4;
    options.request_bytes = body_bytes + 4096;
    options.body_bytes = body_bytes;
    options.seconds = seconds;
    options.write_seconds = 20;
    options.fault = [](int status) { return HttpResponse{status, "text/plain", fmt::format("fault {}", status)}; };
    server_ = std::make_unique<HttpServer>(options);
    server_->post("/echo", [](const HttpRequest& request) {
      return HttpResponse{200, "text/plain", request.body + " by " + request.authorization};
    });
    server_->post("/pieces", [](const HttpRequest&) {
      HttpResponse response{200, "text/event-stream", ""};
      response.stream = [](const HttpWriter& write) {
        for (const char* piece : {"one,", "", "two,", "three"}) EXPECT_TRUE(write(piece));
      };
      return response;
    });
    server_->post("/endless", [this](const HttpRequest& request) {
      HttpResponse response{200, "text/plain", ""};
      response.stream = [this, gone = request.gone](const HttpWriter& write) {
        ++begun_;
        while (write("more ") && !gone()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        ++ended_;
      };
      return response;
    });
    server_->post("/slow", [this](const HttpRequest&) {
      ++begun_;
      while (!release_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return HttpResponse{200, "text/plain", "at last"};
    });
    server_->post("/fails", [](const HttpRequest&) -> HttpResponse { throw Error("this fails"); });
    server_->start();
  }
  // `headers`: lines with their ends.
  static std::string request(const std::string& path, const std::string& body, const std::string& headers = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nAuthorization: me\r\n{}Content-Length: {}\r\n\r\n{}",
                       path, headers, body.size(), body);
  }
  std::string answer(const std::string& bytes) const {
    HttpClient client(server_->port());
    client.send(bytes);
    return client.receive();
  }

  std::atomic<int> begun_{0}, ended_{0};
  std::atomic<bool> release_{false};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpPosting, TakesABodyAndTellsWhoAsks) {
  EXPECT_TRUE(answer(request("/echo", "hello")).ends_with("\r\n\r\nhello by me"));
}

// What a body is called does not matter: curl calls it a form where nothing else is said.
TEST_F(HttpPosting, TakesABodyAsItIs) {
  constexpr std::size_t kLarge = 10000;
  start(HttpServer::Options{}.seconds, kLarge);
  const std::string large(kLarge, 'x');
  for (const char* header : {"Content-Type: application/x-www-form-urlencoded",
                             "Content-Type: multipart/form-data; boundary=b", "Content-Encoding: gzip"})
    EXPECT_TRUE(answer(request("/echo", large, fmt::format("{}\r\n", header))).ends_with(large + " by me")) << header;
}

TEST_F(HttpPosting, AnswersInPieces) {
  const std::string text = answer(request("/pieces", ""));
  EXPECT_TRUE(text.ends_with("4\r\none,\r\n4\r\ntwo,\r\n5\r\nthree\r\n0\r\n\r\n")) << text;
}

TEST_F(HttpPosting, FaultsAreAnsweredAsAsked) {
  const std::string large(2 * kBody, 'x'), huge(100 * kBody, 'x');
  EXPECT_TRUE(names(answer(request("/echo", large)), "HTTP/1.1 413 ", "fault 413"));
  EXPECT_TRUE(names(answer(request("/echo", huge)), "HTTP/1.1 413 ", "fault 413"));
  const std::string chunked = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_TRUE(names(answer(chunked + fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", huge.size(), huge)), "413 "));
  EXPECT_TRUE(names(answer(request("/nowhere", "")), "HTTP/1.1 404 ", "fault 404"));
  EXPECT_TRUE(names(answer(request("/fails", "")), "HTTP/1.1 500 ", "fault 500"));
  EXPECT_TRUE(answer(request("/echo", std::string(kBody, 'y'))).starts_with("HTTP/1.1 200 "));
}

TEST_F(HttpPosting, HalfARequestIsAnsweredWhereverItEnds) {
  const std::string whole = request("/echo", "hello");
  const std::size_t parts[] = {1, 7, whole.find("Host") + 3, whole.size() - 2};
  for (const std::size_t sent : parts) {
    HttpClient client(server_->port());
    client.send(whole.substr(0, sent));
    client.end();
    EXPECT_TRUE(names(client.receive(), "HTTP/1.1 400 ", "fault 400")) << sent;
  }
  HttpClient silent(server_->port());
  silent.end();
  EXPECT_EQ(silent.receive(), "");
  EXPECT_TRUE(names(answer("GET /" + std::string(kBody + 8192, 'x')), "HTTP/1.1 413 ", "fault 413"));
  start(0.2);
  for (const std::size_t sent : parts)
    EXPECT_TRUE(names(answer(whole.substr(0, sent)), "HTTP/1.1 408 ", "fault 408")) << sent;
}

TEST_F(HttpPosting, AClientThatGoesIsNoticed) {
  {
    HttpClient client(server_->port());
    client.send(request("/endless", ""));
    while (begun_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  while (ended_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));  // else the test never ends
}

TEST_F(HttpPosting, TheEndCanWaitForAnswers) {
  HttpClient client(server_->port());
  client.send(request("/slow", ""));
  while (begun_ == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  server_->finish_answers(0.05);  // not yet
  release_ = true;
  server_->finish_answers(1000);
  server_.reset();
  EXPECT_TRUE(client.receive().ends_with("at last"));
}

}  // namespace
}  // namespace zeepo
