#include "zeepo/ops/paged_attention.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Rows of a (.., rows, width) tensor from `begin` on, as key or value heads.
Heads rows_of(const Tensor& x, std::int64_t begin, std::int64_t rows, const HeadLayout& layout) {
  const std::int64_t width = layout.kv_heads * layout.head_dim;
  Heads heads =
      heads_of(x.viewed_as({1, x.elements() / width, width}).view(), begin * width, layout.kv_heads, layout.head_dim);
  heads.rows = rows;
  return heads;
}

Heads part_of(Heads heads, std::int64_t begin, std::int64_t rows) {
  if (heads.data != nullptr)
    heads.data = heads.as<std::byte>() + static_cast<std::size_t>(begin * heads.row_stride) * size_of(heads.dtype);
  heads.rows = rows;
  return heads;
}

// Calls f(position, row of the pool, count) for stretches of [begin, end) whose rows follow each other in the pool.
template <class F>
void for_stretches(std::span<const std::int32_t> pages, std::int64_t page_rows, std::int64_t begin, std::int64_t end,
                   F&& f) {
  while (begin < end) {
    std::int64_t page = begin / page_rows;
    const std::int64_t first = pages[static_cast<std::size_t>(page)] * page_rows + begin % page_rows;
    std::int64_t stop = (page + 1) * page_rows;
    while (stop < end && pages[static_cast<std::size_t>(page + 1)] == pages[static_cast<std::size_t>(page)] + 1) {
      ++page;
      stop += page_rows;
    }
    stop = std::min(stop, end);
    f(begin, first, stop - begin);
    begin = stop;
  }
}

bool in_one_stretch(std::span<const std::int32_t> pages, std::int64_t page_rows, std::int64_t length) {
  std::int64_t stretches = 0;
  for_stretches(pages, page_rows, 0, length, [&](std::int64_t, std::int64_t, std::int64_t) { ++stretches; });
  return stretches == 1;
}

void check_sequences(const Tensor& qkv, const HeadLayout& layout, const LayerPages& layer,
                     std::span<const PagedSequence> sequences) {
  const Shape& pool = layer.keys.shape();
  if (qkv.shape().rank() != 3 || qkv.shape()[0] != 1 || qkv.shape()[2] != layout.width() || pool.rank() != 3 ||
      pool[2] != layout.kv_heads * layout.head_dim || layer.values.shape() != pool)
    throw Error("attention: qkv {} does not fit pages {}", qkv.shape().str(), pool.str());
  std::int64_t rows = 0;
  for (const PagedSequence& sequence : sequences) {
    rows += sequence.rows;
    const std::int64_t room = static_cast<std::int64_t>(sequence.pages.size()) * pool[1];
    if (sequence.rows < 1 || sequence.past < 0 || sequence.past + sequence.rows > room)
      throw Error("attention: {} positions after {} do not fit the {} of their pages", sequence.rows, sequence.past,
                  room);
    for (const std::int32_t page : sequence.pages)
      if (page < 0 || page >= pool[0]) throw Error("attention: page {} of {}", page, pool[0]);
  }
  if (rows != qkv.shape()[1]) throw Error("attention: the sequences have {} rows, qkv {}", rows, qkv.shape().str());
}

}  // namespace

Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options, LayerPages& layer,
                 std::span<const PagedSequence> sequences) {
  check_sequences(qkv, layout, layer, sequences);
  options.dropout = 0;  // pages are for generation
  const std::int64_t page_rows = layer.keys.shape()[1], query_width = layout.heads * layout.head_dim,
                     key_width = layout.kv_heads * layout.head_dim;
  const Heads queries = heads_of(qkv.view(), 0, layout.heads, layout.head_dim),
              keys = heads_of(qkv.view(), query_width, layout.kv_heads, layout.head_dim),
              values = heads_of(qkv.view(), query_width + key_width, layout.kv_heads, layout.head_dim);
  Tensor y({1, qkv.shape()[1], query_width}, qkv.dtype());
  const Heads out = heads_of(y.view(), 0, layout.heads, layout.head_dim);
  std::int64_t row = 0;
  for (const PagedSequence& sequence : sequences) {
    const std::int64_t length = sequence.past + sequence.rows, first = row;
    const bool together = in_one_stretch(sequence.pages, page_rows, length);
    Tensor all_keys, all_values;  // of scattered pages
    if (!together) {
      all_keys = Tensor({length, key_width}, qkv.dtype());
      all_values = Tensor({length, key_width}, qkv.dtype());
    }
    launch([&](auto& s) {
      for_stretches(sequence.pages, page_rows, sequence.past, length,
                    [&](std::int64_t position, std::int64_t in_pool, std::int64_t count) {
                      const std::int64_t from = first + position - sequence.past;
                      copy_heads(s, part_of(keys, from, count), rows_of(layer.keys, in_pool, count, layout));
                      copy_heads(s, part_of(values, from, count), rows_of(layer.values, in_pool, count, layout));
                    });
      Heads k, v;
      if (together) {
        const std::int64_t begin = sequence.pages[0] * page_rows;
        k = rows_of(layer.keys, begin, length, layout);
        v = rows_of(layer.values, begin, length, layout);
      } else {
        for_stretches(
            sequence.pages, page_rows, 0, length, [&](std::int64_t position, std::int64_t in_pool, std::int64_t count) {
              copy_heads(s, rows_of(layer.keys, in_pool, count, layout), rows_of(all_keys, position, count, layout));
              copy_heads(s, rows_of(layer.values, in_pool, count, layout),
                         rows_of(all_values, position, count, layout));
            });
        k = rows_of(all_keys, 0, length, layout);
        v = rows_of(all_values, 0, length, layout);
      }
      attention(s, part_of(queries, first, sequence.rows), k, v, part_of(out, first, sequence.rows), View{}, options);
    });
    row += sequence.rows;
  }
  return y;
}

}  // namespace zeepo
