// Hostile IDX bytes, plain or gzipped: an Error or an array as large as its extents say.
#include <cstddef>
#include <span>

#include "zeepo/base/error.h"
#include "zeepo/data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  try {
    const auto array = zeepo::parse_idx(std::as_bytes(std::span(data, size)), "input");
    std::size_t elements = 1;
    for (const auto extent : array.extents) elements *= static_cast<std::size_t>(extent);
    if (array.values.size() != elements) __builtin_trap();
  } catch (const zeepo::Error&) {
  }
  return 0;
}
