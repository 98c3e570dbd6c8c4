// Whether a file can be read past the page cache.
#pragma once

#include <cstdint>
#include <string>

namespace zeepo {

// Empty where a descriptor with O_DIRECT reads blocks of kDirectAlignment, else why not: some file systems take
// O_DIRECT and then want larger blocks.
std::string obstacle_to_direct_reads(int descriptor, std::int64_t file_bytes);

}  // namespace zeepo
