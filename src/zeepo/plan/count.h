// Numbers as people write them, and arithmetic on them that never overflows in silence.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace zeepo {

// "7500000000", "7.5e9", "7.5B"; M, B and T are 10^6, 10^9 and 10^12. Throws UsageError naming option and text for what
// is not a whole number from `least` on that 63 bits hold.
std::int64_t parse_count(const std::string& option, const std::string& text, std::int64_t least = 1);

// Throws UsageError naming `what` and the factors when the product does not fit 63 bits.
std::int64_t checked_product(std::string_view what, std::initializer_list<std::int64_t> factors);
std::int64_t checked_sum(std::string_view what, std::int64_t a, std::int64_t b);

// a / b, rounded up; neither is negative and b is not 0.
inline std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

}  // namespace zeepo
