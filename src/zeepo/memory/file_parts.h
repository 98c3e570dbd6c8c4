// Parts of files that others have written, on their way to where they belong: cut so that each load fits one buffer.
//
// Files are read in whole blocks around what is wanted, because O_DIRECT asks for them; of a buffer, copies then take
// the wanted bytes alone. Small parts share a load. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "zeepo/io/stored_file.h"

namespace zeepo {

// `bytes` of a file from `offset` on belong at byte `to` of a destination.
struct FilePart {
  const StoredFile* file = nullptr;
  std::int64_t offset = 0;
  std::size_t bytes = 0, to = 0;
};

struct FileLoad {
  struct Blocks {
    const StoredFile* file;
    std::int64_t offset;
    std::size_t bytes, at;  // of the buffer
  };
  struct Copy {
    std::size_t from, to, bytes;  // from: of the buffer
  };
  std::vector<Blocks> blocks;
  std::vector<Copy> copies;
};

// Parts in order, by buffers of `buffer_bytes`, a multiple of kDirectAlignment.
std::vector<FileLoad> loads_of(std::span<const FilePart> parts, std::size_t buffer_bytes);

// Of all parts: what belongs to the destination, and what of the files is read for it.
std::size_t wanted_bytes(std::span<const FilePart> parts);
std::size_t block_bytes(std::span<const FilePart> parts);

}  // namespace zeepo
