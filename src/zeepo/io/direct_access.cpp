#include "zeepo/io/direct_access.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "zeepo/io/engine.h"

namespace zeepo {

std::string obstacle_to_direct_reads(int descriptor, std::int64_t file_bytes) {
  alignas(kDirectAlignment) std::byte block[kDirectAlignment];
  ssize_t n = 0;
  do n = ::pread(descriptor, block, sizeof block, 0);
  while (n < 0 && errno == EINTR);
  if (n == std::min<std::int64_t>(sizeof block, file_bytes)) return "";
  return n < 0 ? std::strerror(errno) : "a short read";
}

}  // namespace zeepo
