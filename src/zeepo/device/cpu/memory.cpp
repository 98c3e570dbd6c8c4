#include "zeepo/device/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/base/numa.h"
#include "zeepo/base/size.h"

namespace zeepo {

MemoryRange host_memory(std::string_view tier, std::size_t bytes) {
  if (bytes == 0) return {};
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    throw Error("{} memory: cannot reserve {}: {}; lower --memory", tier, format_size(static_cast<std::int64_t>(bytes)),
                std::strerror(errno));
  // Huge pages halve the cost of large matrix products; where they are not to be had, ordinary pages do.
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);
  place_on_nodes(memory, bytes);
  return {static_cast<std::byte*>(memory), bytes,
          [](std::byte* data, std::size_t size) noexcept { (void)::munmap(data, size); }};
}

MemoryRange device_memory(CpuStream&, std::string_view tier, std::size_t bytes) { return host_memory(tier, bytes); }
MemoryRange transfer_memory(CpuStream&, std::string_view tier, std::size_t bytes) { return host_memory(tier, bytes); }

}  // namespace zeepo
