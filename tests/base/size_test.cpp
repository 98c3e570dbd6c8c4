#include "zeepo/base/size.h"

#include <gtest/gtest.h>

#include <limits>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

TEST(Size, ParsesWhatPeopleWrite) {
  EXPECT_EQ(parse_size("0"), 0);
  EXPECT_EQ(parse_size("123"), 123);
  EXPECT_EQ(parse_size("123B"), 123);
  EXPECT_EQ(parse_size("2kB"), 2000);
  EXPECT_EQ(parse_size("2KB"), 2000);
  EXPECT_EQ(parse_size("1.5GB"), 1'500'000'000);
  EXPECT_EQ(parse_size("3TB"), 3'000'000'000'000);
  EXPECT_EQ(parse_size("1KiB"), 1024);
  EXPECT_EQ(parse_size("512MiB"), std::int64_t{512} << 20);
  EXPECT_EQ(parse_size("4GiB"), std::int64_t{4} << 30);
  EXPECT_EQ(parse_size("0.5TiB"), std::int64_t{1} << 39);
  EXPECT_EQ(parse_size("4 GiB"), std::int64_t{4} << 30);
}

TEST(Size, RejectsEverythingElseByName) {
  for (const auto* text : {"", "GiB", "-1", "-4GiB", "4gib", "4Gi", "4G", "nan", "inf", "1e30", "9e18GB", "4GiBs",
                           "0x10", "1,5GB", "9223372036854775808"})
    EXPECT_THROW(parse_size(text), Error) << text;
  try {
    parse_size("4 elephants");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("4 elephants"), std::string::npos);
  }
}

TEST(Size, FormatsForReading) {
  EXPECT_EQ(format_size(0), "0 B");
  EXPECT_EQ(format_size(1023), "1023 B");
  EXPECT_EQ(format_size(1024), "1.00 KiB");
  EXPECT_EQ(format_size(std::int64_t{13} << 28), "3.25 GiB");
  EXPECT_EQ(format_size(std::int64_t{5} << 50), "5120.00 TiB");
  EXPECT_EQ(format_size(-2048), "-2.00 KiB");
}

}  // namespace
}  // namespace zeepo
