// What an Error says.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "zeepo/base/error.h"

namespace zeepo {

// Runs f, which must throw Error; its text.
template <class F>
std::string error_text(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return {};
}

// Every part must be in the text.
template <class... Parts>
::testing::AssertionResult names(const std::string& text, const Parts&... parts) {
  for (const std::string_view part : {std::string_view(parts)...})
    if (text.find(part) == std::string::npos)
      return ::testing::AssertionFailure() << "\"" << text << "\" does not name \"" << part << "\"";
  return ::testing::AssertionSuccess();
}

}  // namespace zeepo
