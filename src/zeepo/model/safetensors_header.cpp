#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "zeepo/base/error.h"
#include "zeepo/model/safetensors.h"
#include "zeepo/model/strict_json.h"

namespace zeepo {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::pair<std::string_view, std::int64_t>, 20> kBitsOfDtype{{
    {"F32", 32},    {"BF16", 16},   {"F16", 16},    {"F64", 64},    {"BOOL", 8},    {"U8", 8},   {"I8", 8},
    {"U16", 16},    {"I16", 16},    {"U32", 32},    {"I32", 32},    {"U64", 64},    {"I64", 64}, {"C64", 64},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F4", 4},
}};

std::optional<std::int64_t> bits_of(std::string_view dtype) {
  const auto found = std::ranges::find(kBitsOfDtype, dtype, [](const auto& pair) { return pair.first; });
  return found == kBitsOfDtype.end() ? std::nullopt : std::optional(found->second);
}

std::optional<DType> dtype_from(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "BF16") return DType::bf16;
  if (name == "F16") return DType::f16;
  if (name == "I32") return DType::i32;
  return std::nullopt;
}

// One tensor's line of the table, on its own; how the tensors lie in the file is checked after.
class EntryParser {
 public:
  EntryParser(const std::string& what, const std::string& name, std::int64_t data_bytes)
      : what_(what), name_(name), data_bytes_(data_bytes) {}

  SafetensorsEntry parse(const Json& value) const {
    if (!value.is_object()) fail("is described by {}, must be an object", value.type_name());
    SafetensorsEntry entry;
    entry.name = name_;
    const Json& dtype = member(value, "dtype");
    if (!dtype.is_string()) fail("dtype {} must be a string", shown_json(dtype));
    entry.dtype_name = dtype.get<std::string>();
    entry.dtype = dtype_from(entry.dtype_name);
    parse_shape(member(value, "shape"), entry);
    parse_range(member(value, "data_offsets"), entry);
    return entry;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error("{}: tensor {}: {}", what_, shown(name_), fmt::format(format, std::forward<Args>(args)...));
  }

  const Json& member(const Json& value, const char* key) const {
    const auto found = value.find(key);
    if (found == value.end()) fail("has no {}", key);
    return *found;
  }

  std::int64_t natural(const Json& value, const char* key) const {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::numeric_limits<std::int64_t>::max())
      fail("{} holds {}, must be whole numbers from 0 to 2^63 - 1", key, shown_json(value));
    return value.get<std::int64_t>();
  }

  void parse_shape(const Json& shape, SafetensorsEntry& entry) const {
    if (!shape.is_array()) fail("shape {} must be a list", shown_json(shape));
    entry.elements = 1;
    for (const Json& extent : shape) {
      entry.shape.push_back(natural(extent, "shape"));
      if (__builtin_mul_overflow(entry.elements, entry.shape.back(), &entry.elements))
        fail("shape {} has more than 2^63 - 1 elements", shown_json(shape));
    }
  }

  void parse_range(const Json& offsets, SafetensorsEntry& entry) const {
    if (!offsets.is_array() || offsets.size() != 2) fail("data_offsets {} must be [begin, end]", shown_json(offsets));
    entry.begin_byte = natural(offsets[0], "data_offsets");
    entry.end_byte = natural(offsets[1], "data_offsets");
    if (entry.begin_byte > entry.end_byte) fail("data_offsets {} end before they begin", shown_json(offsets));
    if (entry.end_byte > data_bytes_)
      fail("data_offsets {} are past the end of the data at {}; the file may be an incomplete download",
           shown_json(offsets), data_bytes_);
    const auto bits = bits_of(entry.dtype_name);
    if (!bits) return;
    std::int64_t total_bits = 0;
    if (__builtin_mul_overflow(entry.elements, *bits, &total_bits) || total_bits % 8 != 0 ||
        total_bits / 8 != entry.end_byte - entry.begin_byte)
      fail("{} elements of {} do not fill the {} bytes of its data_offsets", entry.elements, entry.dtype_name,
           entry.end_byte - entry.begin_byte);
  }

  const std::string& what_;
  const std::string& name_;
  std::int64_t data_bytes_;
};

std::map<std::string, std::string> parse_metadata(const Json& value, const std::string& what) {
  if (!value.is_object()) throw Error("{}: __metadata__ is {}, must be an object", what, value.type_name());
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      throw Error("{}: __metadata__ {} is {}, must be a string", what, shown(key), shown_json(text));
    metadata.emplace(key, text.get<std::string>());
  }
  return metadata;
}

// The format wants the data filled end to end, in any order of the names.
void check_layout(const std::vector<SafetensorsEntry>& entries, std::int64_t data_bytes, const std::string& what) {
  std::vector<const SafetensorsEntry*> in_file;
  for (const auto& entry : entries) in_file.push_back(&entry);
  std::ranges::sort(in_file, {}, [](const auto* entry) { return std::pair(entry->begin_byte, entry->end_byte); });
  std::int64_t filled = 0;
  for (const auto* entry : in_file) {
    if (entry->begin_byte < filled)
      throw Error("{}: tensor {} begins at byte {}, inside the tensor before it, which ends at {}", what,
                  shown(entry->name), entry->begin_byte, filled);
    if (entry->begin_byte > filled)
      throw Error("{}: bytes {} to {}, before tensor {}, belong to no tensor", what, filled, entry->begin_byte,
                  shown(entry->name));
    filled = entry->end_byte;
  }
  if (filled != data_bytes) throw Error("{}: {} bytes after the last tensor belong to none", what, data_bytes - filled);
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries, name, {}, &SafetensorsEntry::name);
  return found == entries.end() || found->name != name ? nullptr : &*found;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, const std::string& what) {
  const Json table = parse_json_object(json, what);
  SafetensorsHeader header;
  for (const auto& [name, value] : table.items()) {
    if (name == "__metadata__")
      header.metadata = parse_metadata(value, what);
    else
      header.entries.push_back(EntryParser(what, name, data_bytes).parse(value));
  }
  check_layout(header.entries, data_bytes, what);
  std::ranges::sort(header.entries, {}, &SafetensorsEntry::name);
  return header;
}

}  // namespace zeepo
