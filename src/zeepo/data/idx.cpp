#include "zeepo/data/idx.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/base/file.h"

namespace zeepo {
namespace {

constexpr std::int64_t kLargestIdx = std::int64_t{4} << 30;
constexpr std::int64_t kLargestArray = std::int64_t{4} << 30;
constexpr unsigned kUnsignedByte = 0x08;

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

// Bytes one after the other, unpacked on the way where they are gzipped.
class Source {
 public:
  Source(std::span<const std::byte> bytes, const std::string& name)
      : rest_(bytes), name_(name), packed_(is_gzip(bytes)) {
    if (packed_ && inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw Error("{}: cannot start zlib", name);
  }
  ~Source() {
    if (packed_) inflateEnd(&stream_);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // Fills `out`, or throws Error: the file ends first.
  void read(std::span<std::uint8_t> out) {
    if (read_some(out) != out.size())
      throw Error("{}: ends {} bytes into its values or header; is it cut short?", name_, done_);
  }

  // Throws Error unless all bytes were read.
  void expect_end() {
    std::array<std::uint8_t, 1> more{};
    const std::size_t declared = done_;
    if (read_some(more) != 0 || !rest_.empty())
      throw Error("{}: has bytes after its {} declared ones", name_, declared);
    if (packed_ && !ended_) throw Error("{}: its gzip data ends without a checksum; is it cut short?", name_);
  }

 private:
  std::size_t read_some(std::span<std::uint8_t> out) {
    const std::size_t count = packed_ ? inflate_some(out) : copy_some(out);
    done_ += count;
    return count;
  }

  std::size_t copy_some(std::span<std::uint8_t> out) {
    const std::size_t count = std::min(out.size(), rest_.size());
    if (count > 0) std::memcpy(out.data(), rest_.data(), count);
    rest_ = rest_.subspan(count);
    return count;
  }

  std::size_t inflate_some(std::span<std::uint8_t> out) {
    constexpr std::size_t kMost = std::size_t{1} << 30;  // zlib counts in 32 bits
    std::size_t count = 0;
    while (count < out.size() && !ended_) {
      const std::size_t in_bytes = std::min(rest_.size(), kMost), out_bytes = std::min(out.size() - count, kMost);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));
      stream_.avail_in = static_cast<uInt>(in_bytes);
      stream_.next_out = out.data() + count;
      stream_.avail_out = static_cast<uInt>(out_bytes);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      rest_ = rest_.subspan(in_bytes - stream_.avail_in);
      count += out_bytes - stream_.avail_out;
      ended_ = result == Z_STREAM_END;
      if (result == Z_BUF_ERROR) break;
      if (result != Z_OK && result != Z_STREAM_END)
        throw Error("{}: broken gzip data: {}", name_, stream_.msg != nullptr ? stream_.msg : zError(result));
    }
    return count;
  }

  std::span<const std::byte> rest_;
  const std::string& name_;
  bool packed_, ended_ = false;
  std::size_t done_ = 0;
  z_stream stream_{};
};

std::vector<std::int64_t> read_extents(Source& source, const std::string& name) {
  std::array<std::uint8_t, 4> magic{};
  source.read(magic);
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0)
    throw Error("{}: not an IDX file (it begins with {:02x} {:02x} {:02x} {:02x})", name, magic[0], magic[1], magic[2],
                magic[3]);
  if (magic[2] != kUnsignedByte)
    throw Error("{}: IDX values of type 0x{:02x} are not supported; unsigned bytes (0x08) are", name, magic[2]);
  std::vector<std::int64_t> extents(magic[3]);
  std::int64_t elements = 1;
  for (std::int64_t& extent : extents) {
    std::array<std::uint8_t, 4> big_endian{};
    source.read(big_endian);
    for (const std::uint8_t byte : big_endian) extent = extent << 8 | byte;
    if (extent != 0 && elements > kLargestArray / extent)
      throw Error("{}: its header declares more than {} values", name, kLargestArray);
    elements *= extent;
  }
  return extents;
}

IdxArray read_idx(const std::filesystem::path& path, std::size_t rank, const char* kind) {
  const std::string bytes = read_text(path, kLargestIdx);
  IdxArray array = parse_idx(std::as_bytes(std::span(bytes)), path.string());
  if (array.extents.size() != rank)
    throw Error("{}: has {} dimensions, {} have {}", path.string(), array.extents.size(), kind, rank);
  return array;
}

}  // namespace

IdxArray parse_idx(std::span<const std::byte> bytes, const std::string& name) {
  constexpr std::int64_t kStep = std::int64_t{1} << 20;
  Source source(bytes, name);
  IdxArray array{read_extents(source, name), {}};
  std::int64_t elements = 1;
  for (const std::int64_t extent : array.extents) elements *= extent;
  // Grown as the bytes come, so that a short file with a large header reserves little.
  for (std::int64_t done = 0; done < elements;) {
    const std::int64_t count = std::min(kStep, elements - done);
    array.values.resize(static_cast<std::size_t>(done + count));
    source.read(std::span(array.values).subspan(static_cast<std::size_t>(done)));
    done += count;
  }
  source.expect_end();
  return array;
}

IdxArray read_idx_images(const std::filesystem::path& path) { return read_idx(path, 3, "images"); }
IdxArray read_idx_labels(const std::filesystem::path& path) { return read_idx(path, 1, "labels"); }

}  // namespace zeepo
