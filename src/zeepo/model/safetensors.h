// A safetensors file open for reading: its table of tensors, and any range of elements of one, as fp32.
//
// The header is checked whole when the file is opened: every tensor lies inside the file, none overlaps another,
// nothing is left between them or after them, and every size is shape × dtype. Every fault is an Error naming file and
// tensor. A dtype that zeepo cannot compute with is kept as text; only reading such a tensor is an Error. Reads take no
// lock and may come from any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "zeepo/base/dtype.h"
#include "zeepo/base/file.h"

namespace zeepo {

struct SafetensorsEntry {
  std::string name;
  std::string dtype_name;  // "F32", "BF16", "BOOL", ... as the file says
  std::optional<DType> dtype;
  std::vector<std::int64_t> shape;
  std::int64_t elements = 0;
  std::int64_t begin_byte = 0, end_byte = 0;  // in the data that follows the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // by name
  std::map<std::string, std::string> metadata;

  const SafetensorsEntry* find(std::string_view name) const;  // nullptr when there is none
};

inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// The table from the header's JSON text, for a file with `data_bytes` after it; `what` names the file in errors.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes, const std::string& what);

class SafetensorsFile {
 public:
  using Entry = SafetensorsEntry;

  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return file_.path(); }
  const std::vector<Entry>& entries() const { return header_.entries; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  std::int64_t bytes() const { return file_.bytes(); }
  const FileStamp& stamp() const { return file_.stamp(); }  // when it was opened
  // Of a tensor's first byte, from the start of the file.
  std::int64_t offset_of(const Entry& entry) const { return data_offset_ + entry.begin_byte; }
  const Entry* find(std::string_view name) const { return header_.find(name); }
  // Like find, but a tensor that is not there is an Error.
  const Entry& at(std::string_view name) const;

  // Elements [begin_element, begin_element + out.size()) from F32, BF16, F16 or F64, reading only their bytes.
  void read(const Entry& entry, std::int64_t begin_element, std::span<float> out) const;
  // The same from I64, I32, U8 or BOOL.
  void read_integers(const Entry& entry, std::int64_t begin_element, std::span<std::int64_t> out) const;

 private:
  template <class Stored, class Out>
  void read_as(const Entry& entry, std::int64_t begin_element, std::span<Out> out) const;
  void check_range(const Entry& entry, std::int64_t begin_element, std::size_t count) const;

  InputFile file_;
  std::int64_t data_offset_ = 0;
  SafetensorsHeader header_;
};

}  // namespace zeepo
