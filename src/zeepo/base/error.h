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

// Thrown on all ranks alike where the work has ended, but not as it should: the program ends with this code.
class EndedWith : public Error {
 public:
  template <class... Args>
  explicit EndedWith(int exit_code, fmt::format_string<Args...> format, Args&&... args)
      : Error(format, std::forward<Args>(args)...), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

class UsageError : public Error {
 public:
  using Error::Error;
};

}  // namespace zeepo
