// Whole safetensors files and weight indexes of any bytes: an Error at worst, and what opens must read.
#include "zeepo/model/safetensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "zeepo/base/error.h"
#include "zeepo/model/weight_files.h"

namespace {

// The same descriptor for every input: a file in memory that is cut to the input's length.
int file_in_memory() {
  static const int descriptor = ::memfd_create("input", MFD_CLOEXEC);
  return descriptor;
}

void read_everything(const zeepo::SafetensorsFile& file) {
  for (const auto& entry : file.entries()) {
    const auto count = static_cast<std::size_t>(std::min<std::int64_t>(entry.elements, 1000));
    std::vector<float> floats(count);
    std::vector<std::int64_t> integers(count);
    try {
      file.read(entry, entry.elements - static_cast<std::int64_t>(count), floats);
      file.read_integers(entry, 0, integers);
    } catch (const zeepo::Error&) {
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    zeepo::parse_weight_index(bytes, "index");
  } catch (const zeepo::Error&) {
  }
  try {
    zeepo::parse_safetensors_header(bytes, 64, "header");
  } catch (const zeepo::Error&) {
  }
  const int descriptor = file_in_memory();
  if (::ftruncate(descriptor, 0) != 0 || ::pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size))
    std::abort();
  try {
    read_everything(zeepo::SafetensorsFile("/proc/self/fd/" + std::to_string(descriptor)));
  } catch (const zeepo::Error&) {
  }
  return 0;
}
