// Text of strangers (names in model files, values of configurations) as a terminal may be given it.
#pragma once

#include <string>
#include <string_view>

namespace zeepo {

// Control characters but for newline and tab are spelled out, "\x1b"; all else stays.
std::string printable(std::string_view text);

}  // namespace zeepo
