#include "zeepo/ops/paged_attention.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "zeepo/base/error.h"
#include "zeepo/kernels/coded_heads.h"
#include "zeepo/kernels/copy_heads.h"
#include "zeepo/kernels/decode_attention.h"
#include "zeepo/memory/lower_tiers.h"
#include "zeepo/tensor/device.h"

namespace zeepo {
namespace {

// Rows of a (.., rows, width) tensor from `begin` on, as key or value heads.
Heads rows_of(const Tensor& x, std::int64_t begin, std::int64_t rows, const HeadLayout& layout) {
  const std::int64_t head = x.dtype() == DType::u8 ? coded_head_bytes(layout.head_dim) : layout.head_dim;
  const std::int64_t width = layout.kv_heads * head;
  Heads heads = heads_of(x.viewed_as({1, x.elements() / width, width}).view(), begin * width, layout.kv_heads, head);
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
  const Shape& pool = layer.shape;
  if (qkv.shape().rank() != 3 || qkv.shape()[0] != 1 || qkv.shape()[2] != layout.width() || pool.rank() != 3 ||
      pool[2] != cached_width(layout.kv_heads, layout.head_dim, layer.dtype) ||
      (layer.dtype != qkv.dtype() && layer.dtype != DType::u8))
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

// The heads of a pass, and where its rows stand.
struct Rows {
  Rows(const Tensor& qkv, const Tensor& y, const HeadLayout& heads)
      : layout(heads),
        q(heads_of(qkv.view(), 0, heads.heads, heads.head_dim)),
        k(heads_of(qkv.view(), heads.heads * heads.head_dim, heads.kv_heads, heads.head_dim)),
        v(heads_of(qkv.view(), (heads.heads + heads.kv_heads) * heads.head_dim, heads.kv_heads, heads.head_dim)),
        out(heads_of(y.view(), 0, heads.heads, heads.head_dim)) {}
  HeadLayout layout;
  Heads q, k, v, out;
};

// Keys and values, brought together: all of them, or room for all of them.
struct Together {
  Together(std::int64_t positions, const HeadLayout& layout, DType dtype)
      : keys({positions, cached_width(layout.kv_heads, layout.head_dim, dtype)}, dtype), values(keys.shape(), dtype) {}
  Tensor keys, values;
};

// New rows to the cache, and rows of it to be used: as they are, or to codes and back.
template <class Stream>
void keep_heads(Stream& stream, ConstHeads from, Heads to) {
  to.dtype == DType::u8 ? encode_heads(stream, from, to) : copy_heads(stream, from, to);
}
template <class Stream>
void take_heads(Stream& stream, ConstHeads from, Heads to) {
  from.dtype == DType::u8 ? expand_heads(stream, from, to) : copy_heads(stream, from, to);
}

// One new position after pages that follow each other, in one kernel; false where the device has none.
bool in_one_kernel(const Rows& rows, std::int64_t first, const PagedSequence& sequence, const LayerPages& layer,
                   const AttentionOptions& options) {
  if (sequence.rows != 1) return false;
  const std::int64_t begin = sequence.pages[0] * layer.shape[1], length = sequence.past + 1;
  const DecodeAttention op{.q = part_of(rows.q, first, 1),
                           .k = part_of(rows.k, first, 1),
                           .v = part_of(rows.v, first, 1),
                           .keys = rows_of(layer.keys, begin, length, rows.layout),
                           .values = rows_of(layer.values, begin, length, rows.layout),
                           .out = part_of(rows.out, first, 1),
                           .options = options};
  bool taken = false;
  launch([&](auto& s) {
    taken = takes(s, op);
    if (taken) attend(s, op);
  });
  return taken;
}

void in_place(const Rows& rows, std::int64_t first, const PagedSequence& sequence, const LayerPages& layer,
              const AttentionOptions& options) {
  const std::int64_t page_rows = layer.shape[1], length = sequence.past + sequence.rows;
  const HeadLayout& layout = rows.layout;
  const bool scattered = layer.dtype != rows.q.dtype || !in_one_stretch(sequence.pages, page_rows, length);
  if (!scattered && in_one_kernel(rows, first, sequence, layer, options)) return;
  std::optional<Together> copied;
  if (scattered) copied.emplace(length, layout, rows.q.dtype);
  launch([&](auto& s) {
    for_stretches(sequence.pages, page_rows, sequence.past, length,
                  [&](std::int64_t position, std::int64_t in_pool, std::int64_t count) {
                    const std::int64_t from = first + position - sequence.past;
                    keep_heads(s, part_of(rows.k, from, count), rows_of(layer.keys, in_pool, count, layout));
                    keep_heads(s, part_of(rows.v, from, count), rows_of(layer.values, in_pool, count, layout));
                  });
    const std::int64_t begin = scattered ? 0 : sequence.pages[0] * page_rows;
    if (scattered)
      for_stretches(
          sequence.pages, page_rows, 0, length, [&](std::int64_t position, std::int64_t in_pool, std::int64_t count) {
            take_heads(s, rows_of(layer.keys, in_pool, count, layout), rows_of(copied->keys, position, count, layout));
            take_heads(s, rows_of(layer.values, in_pool, count, layout),
                       rows_of(copied->values, position, count, layout));
          });
    attention(s, part_of(rows.q, first, sequence.rows),
              rows_of(scattered ? copied->keys : layer.keys, begin, length, layout),
              rows_of(scattered ? copied->values : layer.values, begin, length, layout),
              part_of(rows.out, first, sequence.rows), View{}, options);
  });
}

// Sequences whose pages are in host memory, on their way together.
class Fetched {
 public:
  // first: the row of the pass where they begin.
  Fetched(std::span<const PagedSequence> sequences, std::int64_t first, const LayerPages& layer,
          const HeadLayout& layout)
      : sequences_(sequences),
        first_(first),
        layer_(layer),
        layout_(layout),
        here_(positions_of(sequences), layout, layer.dtype) {
    start(Way::up);
  }
  static std::int64_t positions_of(std::span<const PagedSequence> sequences) {
    std::int64_t positions = 0;
    for (const PagedSequence& sequence : sequences) positions += sequence.past + sequence.rows;
    return positions;
  }

  // Waits for the past; the new positions join it here, and in host memory.
  void attend(const Rows& rows, const AttentionOptions& options) {
    wait();
    std::int64_t first = first_, at = 0;
    for (const PagedSequence& sequence : sequences_) {
      attend(sequence, at, rows, first, options);
      first += sequence.rows;
      at += sequence.past + sequence.rows;
    }
    start(Way::down);
  }
  void wait() {
    if (moving_) lower().wait(moving_->handle(), Place::host);
    moving_.reset();
  }

 private:
  static constexpr About kAbout{"KV cache", ""};
  static LowerTiers& lower() { return *Device::current().lower; }
  static std::byte* bytes_of(const Tensor& x) { return static_cast<std::byte*>(x.view().data); }

  // Of a sequence whose first position stands at row `at` here.
  void attend(const PagedSequence& sequence, std::int64_t at, const Rows& rows, std::int64_t first,
              const AttentionOptions& options) {
    const std::int64_t past = sequence.past, count = sequence.rows, length = past + count;
    std::optional<Together> expanded;
    if (layer_.dtype != rows.q.dtype) expanded.emplace(length, layout_, rows.q.dtype);
    launch([&](auto& s) {
      keep_heads(s, part_of(rows.k, first, count), rows_of(here_.keys, at + past, count, layout_));
      keep_heads(s, part_of(rows.v, first, count), rows_of(here_.values, at + past, count, layout_));
      if (expanded) {
        take_heads(s, rows_of(here_.keys, at, length, layout_), rows_of(expanded->keys, 0, length, layout_));
        take_heads(s, rows_of(here_.values, at, length, layout_), rows_of(expanded->values, 0, length, layout_));
      }
      const Together& used = expanded ? *expanded : here_;
      const std::int64_t begin = expanded ? 0 : at;
      attention(s, part_of(rows.q, first, count), rows_of(used.keys, begin, length, layout_),
                rows_of(used.values, begin, length, layout_), part_of(rows.out, first, count), View{}, options);
    });
  }

  // The past comes up, new positions go down.
  enum class Way { up, down };
  void start(Way way) {
    if (Device::current().compute.dry()) return;
    std::vector<LinkCopy> copies;
    std::int64_t at = 0;
    for (const PagedSequence& sequence : sequences_) {
      add_copies(sequence, at, way, copies);
      at += sequence.past + sequence.rows;
    }
    if (copies.empty()) return;
    moving_.emplace(way == Way::up ? lower().upload_out_of_band(std::move(copies), kAbout, {})
                                   : lower().download_out_of_band(std::move(copies), kAbout, {}));
  }

  void add_copies(const PagedSequence& sequence, std::int64_t at, Way way, std::vector<LinkCopy>& copies) const {
    const bool up = way == Way::up;
    const std::size_t row_bytes = static_cast<std::size_t>(layer_.shape[2]) * size_of(layer_.dtype);
    for_stretches(
        sequence.pages, layer_.shape[1], up ? 0 : sequence.past, up ? sequence.past : sequence.past + sequence.rows,
        [&](std::int64_t position, std::int64_t in_pool, std::int64_t count) {
          const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes;
          for (const auto& [block, tensor] :
               {std::pair(layer_.host_keys.get(), &here_.keys), std::pair(layer_.host_values.get(), &here_.values)}) {
            std::byte* const host = block->data() + static_cast<std::size_t>(in_pool) * row_bytes;
            std::byte* const here = bytes_of(*tensor) + static_cast<std::size_t>(at + position) * row_bytes;
            copies.push_back(up ? LinkCopy{host, here, bytes} : LinkCopy{here, host, bytes});
          }
        });
  }

  std::span<const PagedSequence> sequences_;
  std::int64_t first_;
  const LayerPages& layer_;
  HeadLayout layout_;
  Together here_;
  std::optional<WaitingCompletion> moving_;  // last: memory is not given back under a running copy
};

// Sequences from the front that travel together: of at most kHostBlockPositions, or one.
std::span<const PagedSequence> block_of(std::span<const PagedSequence> sequences) {
  std::size_t count = 0;
  std::int64_t positions = 0;
  while (count < sequences.size()) {
    positions += sequences[count].past + sequences[count].rows;
    if (count > 0 && positions > kHostBlockPositions) break;
    ++count;
  }
  return sequences.first(count);
}

// Three blocks of sequences at a time: one arrives, one is used, one leaves. After the last one the next layer's first
// arrives.
void through_host(const Rows& rows, std::span<const PagedSequence> sequences, const LayerPages& layer,
                  const AttentionOptions& options, PagesAhead* ahead) {
  const auto all = sequences;
  std::int64_t first = 0;
  const auto fetch = [&]() -> std::shared_ptr<Fetched> {
    if (sequences.empty()) return nullptr;
    const auto block = block_of(sequences);
    const bool here = first == 0 && ahead && ahead->of == &layer;
    auto fetched = here ? std::static_pointer_cast<Fetched>(std::exchange(ahead->block, nullptr))
                        : std::make_shared<Fetched>(block, first, layer, rows.layout);
    for (const PagedSequence& sequence : block) first += sequence.rows;
    sequences = sequences.subspan(block.size());
    return fetched;
  };
  std::shared_ptr<Fetched> leaving, next = fetch();
  while (next) {
    const std::shared_ptr<Fetched> now = std::move(next);
    if (leaving) leaving->wait();
    leaving.reset();
    next = fetch();
    if (!next && ahead) {
      ahead->of = ahead->next;
      if (ahead->next) ahead->block = std::make_shared<Fetched>(block_of(all), 0, *ahead->next, rows.layout);
    }
    now->attend(rows, options);
    leaving = now;
  }
  if (leaving) leaving->wait();
}

}  // namespace

LayerPages::LayerPages(Shape pool, DType type, Place place) : shape(pool), dtype(type) {
  if (place == Place::device) {
    keys = Tensor(shape, dtype, Kind::activations);
    values = Tensor(shape, dtype, Kind::activations);
    return;
  }
  LowerTiers* const lower = Device::current().lower;
  if (lower == nullptr || place != Place::host) throw Error("KV cache: there is no host memory to offload to");
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * size_of(dtype);
  host_keys = std::make_shared<const Block>(lower->host().allocate(bytes, Kind::activations));
  host_values = std::make_shared<const Block>(lower->host().allocate(bytes, Kind::activations));
}

Tensor attention(const Tensor& qkv, const HeadLayout& layout, AttentionOptions options, LayerPages& layer,
                 std::span<const PagedSequence> sequences, PagesAhead* ahead) {
  check_sequences(qkv, layout, layer, sequences);
  options.dropout = 0;  // pages are for generation
  Tensor y({1, qkv.shape()[1], layout.heads * layout.head_dim}, qkv.dtype());
  const Rows rows(qkv, y, layout);
  if (layer.host_keys) {
    through_host(rows, sequences, layer, options, ahead);
    return y;
  }
  std::int64_t first = 0;
  for (const PagedSequence& sequence : sequences) {
    in_place(rows, first, sequence, layer, options);
    first += sequence.rows;
  }
  return y;
}

}  // namespace zeepo
