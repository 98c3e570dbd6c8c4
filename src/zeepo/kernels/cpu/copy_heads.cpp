#include "zeepo/kernels/copy_heads.h"

#include <cstring>

namespace zeepo {

void copy_heads(CpuStream& stream, ConstHeads from, Heads to) {
  const auto width = static_cast<std::size_t>(from.heads * from.head_dim) * size_of(from.dtype);
  const auto element = static_cast<std::int64_t>(size_of(from.dtype));
  stream.pool().for_range(from.batch * from.rows, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / from.rows, t = i % from.rows;
      std::memcpy(to.as<std::byte>() + (b * to.batch_stride + t * to.row_stride) * element,
                  from.as<std::byte>() + (b * from.batch_stride + t * from.row_stride) * element, width);
    }
  });
}

}  // namespace zeepo
