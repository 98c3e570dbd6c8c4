// Files that the tests read.
#pragma once

#include <filesystem>
#include <string>

namespace zeepo {

// The directory of a golden model, "gpt2-tiny".
inline std::filesystem::path golden(const std::string& name) {
  return std::filesystem::path(ZEEPO_TEST_DATA) / "golden" / name;
}

}  // namespace zeepo
