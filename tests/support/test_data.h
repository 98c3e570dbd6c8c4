// Files that the tests read.
#pragma once

#include <filesystem>
#include <string>

#include "tests/support/places.h"

namespace zeepo {

// The directory of a golden model, "gpt2-tiny".
inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(kTestData) / "golden" / name;
}

}  // namespace zeepo
