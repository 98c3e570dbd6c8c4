#include "zeepo/plan/plan_text.h"

#include <gtest/gtest.h>

#include <sstream>

namespace zeepo {
namespace {

TEST(PlanText, KeepsThreeDigits) {
  EXPECT_EQ(short_size(0), "0 B");
  EXPECT_EQ(short_size(1023), "1023 B");
  EXPECT_EQ(short_size(1536), "1.50 KiB");
  EXPECT_EQ(short_size(std::int64_t{735} << 20), "735 MiB");
  EXPECT_EQ(short_size(-(std::int64_t{7} << 29)), "-3.50 GiB");
  EXPECT_EQ(short_size(std::int64_t{1} << 62), "4.00 EiB");
  EXPECT_EQ(short_decimal_size(31'406'250'000), "31.4 GB");
  EXPECT_EQ(short_decimal_size(1'875'000'000), "1.88 GB");
  EXPECT_EQ(short_count(7'500'000'000), "7.50B");
  EXPECT_EQ(short_count(999), "999");
}

TEST(PlanText, TellsRatesInFewDigits) {
  EXPECT_EQ(short_rate(0.754), "0.75");
  EXPECT_EQ(short_rate(9999), "9999");
  EXPECT_EQ(short_rate(12'540), "12.5k");
  EXPECT_EQ(short_rate(999'400), "999k");
  EXPECT_EQ(short_rate(999'600), "1M");
  EXPECT_EQ(short_rate(6.93e6), "6.93M");
  EXPECT_EQ(short_rate(1.25e9), "1.25G");
}

TEST(PlanText, TellsSecondsWithoutExponents) {
  EXPECT_EQ(short_seconds(0.0182), "18.2 ms");
  EXPECT_EQ(short_seconds(0.9996), "1 s");
  EXPECT_EQ(short_seconds(1.934), "1.93 s");
  EXPECT_EQ(short_seconds(4844), "4844 s");
}

TEST(PlanText, FoldsCommandsBetweenOptions) {
  std::string command = "mpirun -n 8 zeepo train";
  for (int i = 0; i < 12; ++i) command += " --offload-optimizer host=0.25";
  const std::string text = folded(command);
  std::string joined;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 80u);
    EXPECT_TRUE(joined.empty() || line.starts_with("    --offload-optimizer host")) << line;
    const bool goes_on = line.ends_with(" \\");
    joined += goes_on ? line.substr(0, line.size() - 1) : line;
  }
  std::istringstream once(joined), given(command);
  for (std::string a, b; given >> a;) {
    once >> b;
    EXPECT_EQ(a, b);
  }
}

}  // namespace
}  // namespace zeepo
