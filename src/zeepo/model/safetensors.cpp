#include "zeepo/model/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "zeepo/base/error.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors are little endian, and so are the readers here");

constexpr std::int64_t kLengthBytes = 8;
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

struct Opened {
  std::string json;
  std::int64_t data_offset = 0;
};

Opened read_header(const InputFile& file) {
  const std::string what = file.path().string();
  if (file.bytes() < kLengthBytes)
    throw Error("{}: {} bytes, too short for a safetensors file; it may be an incomplete download", what, file.bytes());
  std::uint64_t length = 0;
  file.read(0, std::as_writable_bytes(std::span(&length, 1)));
  if (length == 0) throw Error("{}: its header has no bytes; this is not a safetensors file", what);
  if (length > static_cast<std::uint64_t>(kMaxSafetensorsHeaderBytes))
    throw Error("{}: a header of {} bytes, more than the {} that the format allows; this is not a safetensors file",
                what, length, kMaxSafetensorsHeaderBytes);
  if (length > static_cast<std::uint64_t>(file.bytes() - kLengthBytes))
    throw Error("{}: a header of {} bytes in a file of {}; it may be an incomplete download", what, length,
                file.bytes());
  Opened opened{std::string(static_cast<std::size_t>(length), '\0'), kLengthBytes + static_cast<std::int64_t>(length)};
  file.read(kLengthBytes, std::as_writable_bytes(std::span(opened.json)));
  return opened;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const Opened opened = read_header(file_);
  data_offset_ = opened.data_offset;
  header_ = parse_safetensors_header(opened.json, file_.bytes() - data_offset_, path.string());
}

const SafetensorsEntry& SafetensorsFile::at(std::string_view name) const {
  const Entry* entry = find(name);
  if (entry == nullptr) throw Error("{}: has no tensor {}", path().string(), shown(name));
  return *entry;
}

void SafetensorsFile::check_range(const Entry& entry, std::int64_t begin_element, std::size_t count) const {
  if (begin_element < 0 || begin_element > entry.elements ||
      count > static_cast<std::uint64_t>(entry.elements - begin_element))
    throw Error("{}: tensor {}: {} elements from {} are past its {}", path().string(), shown(entry.name), count,
                begin_element, entry.elements);
}

template <class Stored, class Out>
void SafetensorsFile::read_as(const Entry& entry, std::int64_t begin_element, std::span<Out> out) const {
  check_range(entry, begin_element, out.size());
  std::int64_t offset = data_offset_ + entry.begin_byte + begin_element * static_cast<std::int64_t>(sizeof(Stored));
  if constexpr (std::is_same_v<Stored, Out>) {
    file_.read(offset, std::as_writable_bytes(out));
  } else {
    std::vector<Stored> piece(std::min(out.size(), kPieceBytes / sizeof(Stored)));
    while (!out.empty()) {
      const auto stored = std::span(piece).first(std::min(out.size(), piece.size()));
      file_.read(offset, std::as_writable_bytes(stored));
      for (std::size_t i = 0; i < stored.size(); ++i) {
        if constexpr (std::is_same_v<Stored, bf16> || std::is_same_v<Stored, f16>)
          out[i] = to_float(stored[i]);
        else
          out[i] = static_cast<Out>(stored[i]);
      }
      offset += static_cast<std::int64_t>(stored.size_bytes());
      out = out.subspan(stored.size());
    }
  }
}

void SafetensorsFile::read(const Entry& entry, std::int64_t begin_element, std::span<float> out) const {
  if (entry.dtype_name == "F32") return read_as<float>(entry, begin_element, out);
  if (entry.dtype_name == "BF16") return read_as<bf16>(entry, begin_element, out);
  if (entry.dtype_name == "F16") return read_as<f16>(entry, begin_element, out);
  if (entry.dtype_name == "F64") return read_as<double>(entry, begin_element, out);
  throw Error("{}: tensor {} has dtype {}; weights are read from F32, BF16, F16 and F64", path().string(),
              shown(entry.name), shown(entry.dtype_name));
}

void SafetensorsFile::read_integers(const Entry& entry, std::int64_t begin_element, std::span<std::int64_t> out) const {
  if (entry.dtype_name == "I64") return read_as<std::int64_t>(entry, begin_element, out);
  if (entry.dtype_name == "I32") return read_as<std::int32_t>(entry, begin_element, out);
  if (entry.dtype_name == "U8" || entry.dtype_name == "BOOL") return read_as<std::uint8_t>(entry, begin_element, out);
  throw Error("{}: tensor {} has dtype {}; integers are read from I64, I32, U8 and BOOL", path().string(),
              shown(entry.name), shown(entry.dtype_name));
}

}  // namespace zeepo
