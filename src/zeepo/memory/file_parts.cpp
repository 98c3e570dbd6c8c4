#include "zeepo/memory/file_parts.h"

#include <algorithm>

#include "zeepo/memory/arena.h"

namespace zeepo {
namespace {

std::size_t into_block(std::int64_t offset) { return static_cast<std::size_t>(offset) % kDirectAlignment; }

// Of the file from the start of a block on, as far as `bytes` after `offset`.
std::size_t blocks_around(std::int64_t offset, std::size_t bytes) {
  return Arena::aligned(into_block(offset) + bytes, kDirectAlignment);
}

}  // namespace

std::vector<FileLoad> loads_of(std::span<const FilePart> parts, std::size_t buffer_bytes) {
  std::vector<FileLoad> loads;
  std::size_t used = buffer_bytes;  // of the last load's buffer, whole blocks
  for (FilePart part : parts)
    while (part.bytes > 0) {
      if (used == buffer_bytes) {
        loads.emplace_back();
        used = 0;
      }
      const std::size_t before = into_block(part.offset);
      const std::size_t taken = std::min(part.bytes, buffer_bytes - used - before);
      const std::size_t bytes = blocks_around(part.offset, taken);
      loads.back().blocks.push_back({part.file, part.offset - static_cast<std::int64_t>(before), bytes, used});
      loads.back().copies.push_back({used + before, part.to, taken});
      used += bytes;
      part.offset += static_cast<std::int64_t>(taken);
      part.to += taken;
      part.bytes -= taken;
    }
  return loads;
}

std::size_t wanted_bytes(std::span<const FilePart> parts) {
  std::size_t bytes = 0;
  for (const FilePart& part : parts) bytes += part.bytes;
  return bytes;
}

std::size_t block_bytes(std::span<const FilePart> parts) {
  std::size_t bytes = 0;
  for (const FilePart& part : parts) bytes += blocks_around(part.offset, part.bytes);
  return bytes;
}

}  // namespace zeepo
