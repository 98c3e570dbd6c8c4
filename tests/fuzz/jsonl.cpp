// Hostile lines of a .jsonl: an Error or valid text.
#include <cstddef>
#include <string_view>

#include "zeepo/base/error.h"
#include "zeepo/data/documents.h"
#include "zeepo/data/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const auto text = zeepo::text_of_json_line({reinterpret_cast<const char*>(data), size}, "input", 1);
    if (zeepo::valid_utf8_prefix(text) != text.size()) __builtin_trap();
  } catch (const zeepo::Error&) {
  }
  return 0;
}
