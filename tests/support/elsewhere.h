// Where a test's data and programs are: as built, or where the environment says, on a machine other than the one that
// built the test.
#pragma once

#include <cstdlib>
#include <string>

namespace zeepo {

inline std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : otherwise;
}

}  // namespace zeepo
