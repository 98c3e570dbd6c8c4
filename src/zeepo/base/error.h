// The one exception type. Its text is what the user reads: the function or option, the value, the limit, the way out.
//
// UsageError is an Error in what was asked for on the command line (exit code 2); every other Error exits with 1.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>
#include <utility>

namespace zeepo {

class Error : public std::runtime_error {
 public:
  template <class... Args>
  explicit Error(fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace zeepo
