#include "zeepo/plan/count.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

constexpr std::array<std::pair<char, std::string_view>, 3> kSuffixes{{{'M', "e6"}, {'B', "e9"}, {'T', "e12"}}};

// Where every digit is written, as a double may not hold it.
std::optional<std::int64_t> plain_number(const std::string& text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  return fault == std::errc{} && stop == end ? std::optional(value) : std::nullopt;
}

// A suffix is read as the exponent that it is: 8.03 x 1e9 is no whole number, and 8.03e9 is one.
std::optional<std::int64_t> short_number(std::string text) {
  for (const auto& [suffix, exponent] : kSuffixes)
    if (text.ends_with(suffix)) text.replace(text.size() - 1, 1, exponent);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, fault] = std::from_chars(text.data(), end, value);
  const bool whole = fault == std::errc{} && stop == end && std::abs(value) < 0x1p63 && std::floor(value) == value;
  return whole ? std::optional(static_cast<std::int64_t>(value)) : std::nullopt;
}

}  // namespace

std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least) {
  auto value = plain_number(text);
  if (!value) value = short_number(text);
  if (!value || *value < least)
    throw UsageError("{} {}: must be a whole number from {} to 9.2e18; 7.5e9 and 7.5B are ways to write one", option,
                     text, least);
  return *value;
}

std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(product, factor, &product))
      throw UsageError("plan: {}: {} is more than 9.2e18 (2^63); plan for something smaller", what,
                       fmt::join(factors, " x "));
  return product;
}

std::int64_t checked_sum(std::string_view what, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum))
    throw UsageError("plan: {}: {} + {} is more than 9.2e18 (2^63); plan for something smaller", what, a, b);
  return sum;
}

}  // namespace zeepo
