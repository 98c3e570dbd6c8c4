// Byte sizes as people write them: "512MiB", "4GiB", "1.5GB"; a bare number is bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace zeepo {

// Throws Error naming the text when it is not a size, is negative, or does not fit 63 bits.
std::int64_t parse_size(std::string_view text);
std::string format_size(std::int64_t bytes);  // "3.25 GiB"

}  // namespace zeepo
