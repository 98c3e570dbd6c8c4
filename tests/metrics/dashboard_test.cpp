#include "zeepo/metrics/dashboard.h"

#include <deque>

#include "tests/metrics/events.h"
#include "tests/support/errors.h"
#include "tests/support/http_client.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

class Dashboards : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_http_server()) GTEST_SKIP() << "this build has no HTTP server";
  }
};

int port_of(const Dashboard& dashboard) {
  return std::stoi(dashboard.address().substr(dashboard.address().rfind(':') + 1));
}

TEST_F(Dashboards, ShowTheRunAsItGoes) {
  Dashboard dashboard("127.0.0.1", 0, "tiny <model>");
  const int port = port_of(dashboard);
  const HttpAnswer page = http_get(port, "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(names(page.body, "tiny &lt;model>", "const zeepoRun = null", "class Chart"));
  EXPECT_EQ(Json::parse(http_get(port, "/data").body).at("last"), Json::array());
  for (int step = 1; step <= 1000; ++step) dashboard.write(step_event(step, step));
  const Json all = Json::parse(http_get(port, "/data").body);
  EXPECT_EQ(all.at("last").size(), 1000u);
  dashboard.write(step_event(1001, 7));
  dashboard.write(eval_event(1001, 8));
  const Json more = Json::parse(http_get(port, "/data?from=1000&stride=1").body);
  EXPECT_EQ(more.at("from"), 999);
  EXPECT_EQ(more.at("last"), Json({1000, 1001}));
  EXPECT_EQ(more.at("evals"), Json::parse("[[1001,8]]"));
  for (const char* query : {"?from=x", "?from=-1&stride=99999999999999999999", "?stride=", "?from=1&from=2"})
    EXPECT_EQ(Json::parse(http_get(port, std::string("/data") + query).body).at("last").size(), 1001u) << query;
}

TEST_F(Dashboards, OfThisMachineAloneAnswerToItsNames) {
  const Dashboard dashboard("127.0.0.1", 0, "run");
  const int port = port_of(dashboard);
  for (const char* path : {"/", "/data"}) {
    EXPECT_EQ(http_get(port, path, "", "127.0.0.1").status, 200);
    EXPECT_EQ(http_get(port, path, "", "localhost").status, 200);
    EXPECT_EQ(http_get(port, path, "", "evil.example").status, 403);
  }
}

TEST_F(Dashboards, AClientThatReadsNothingHoldsNothingUp) {
  Dashboard dashboard("127.0.0.1", 0, "run");
  for (int step = 1; step <= 2000; ++step) dashboard.write(step_event(step));
  std::deque<HttpClient> clients;
  for (int i = 0; i < 8; ++i)
    clients.emplace_back(port_of(dashboard)).send("GET /data HTTP/1.1\r\nHost: localhost\r\n\r\n");
  for (int step = 2001; step <= 4000; ++step) dashboard.write(step_event(step));
}

}  // namespace
}  // namespace zeepo
