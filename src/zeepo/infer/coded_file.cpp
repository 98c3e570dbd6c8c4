#include "zeepo/infer/coded_file.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "zeepo/base/error.h"

namespace zeepo {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kElementsAtOnce = 1 << 20;
constexpr std::size_t kBytesAtOnce = std::size_t{1} << 22;
constexpr std::int64_t kLargestTable = std::int64_t{1} << 28;

// The last bytes of a file.
struct Footer {
  std::uint64_t table_bytes, table_checksum;
  char magic[8];
};
constexpr char kMagic[8] = {'z', 'p', 'c', 'o', 'd', 'e', 's', '1'};

std::string text_of(XXH64_hash_t hash) { return fmt::format("{:016x}", hash); }

struct Hash {
  Hash() : state(XXH3_createState(), &XXH3_freeState) { XXH3_64bits_reset(state.get()); }
  void add(std::span<const std::byte> bytes) { XXH3_64bits_update(state.get(), bytes.data(), bytes.size()); }
  std::string text() const { return text_of(XXH3_64bits_digest(state.get())); }
  std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state;
};

// Of the weights that the parameter is made of.
std::string name_of(const UnitParameter& parameter) {
  std::string name;
  for (const UnitWeight& weight : parameter.weights)
    name += fmt::format("{}{}[{}:{}]", name.empty() ? "" : " ", weight.slice.name, weight.begin,
                        weight.begin + weight.elements);
  return name;
}

// Elements of the parameter, from its weights.
void collect(const UnitParameter& parameter, const Extent& wanted, const WeightSource& source, std::span<float> out) {
  std::int64_t first = 0;  // of the weight, in the parameter
  for (const UnitWeight& weight : parameter.weights) {
    const Extent part = common({first, first + weight.elements}, wanted);
    if (!part.empty())
      source(
          weight.slice, weight.begin + part.begin - first,
          out.subspan(static_cast<std::size_t>(part.begin - wanted.begin), static_cast<std::size_t>(part.elements())));
    first += weight.elements;
  }
}

}  // namespace

void CodedFile::write(const std::filesystem::path& path, CodedType type, const std::string& source,
                      const UnitPlan& units, const WeightSource& weights, CpuStream& stream) {
  OutputFile file(path);
  Json parameters = Json::object();
  std::int64_t offset = 0;
  std::vector<float> values;
  std::vector<std::byte> rows;
  for (const Unit& unit : units.units)
    for (const UnitParameter& parameter : unit.parameters) {
      if (stays_exact(parameter)) continue;
      Hash hash;
      const std::int64_t begin = offset;
      in_parts({0, parameter.shape.elements()}, 0, kElementsAtOnce, [&](const Extent& part) {
        values.resize(static_cast<std::size_t>(part.elements()));
        rows.resize(coded_bytes(type, part.elements()));
        collect(parameter, part, weights, values);
        encode_weights(stream, type, values, rows.data());
        hash.add(rows);
        file.write(rows);
        offset += static_cast<std::int64_t>(rows.size());
      });
      parameters[name_of(parameter)] = {{"offset", begin}, {"bytes", offset - begin}, {"checksum", hash.text()}};
    }
  const Json table{{"type", zeepo::name_of(type)}, {"source", source}, {"parameters", std::move(parameters)}};
  const std::string text = table.dump();
  file.write(text);
  Footer footer{text.size(), XXH3_64bits(text.data(), text.size()), {}};
  std::memcpy(footer.magic, kMagic, sizeof kMagic);
  file.write(std::as_bytes(std::span(&footer, 1)));
  file.commit();
}

CodedFile::CodedFile(const std::filesystem::path& path, CodedType type, const std::string& source, Check check)
    : file_(path), type_(type) {
  read_table(type, source);
  if (check == Check::all) check_rows();
}

void CodedFile::read_table(CodedType type, const std::string& source) {
  const auto refuse = [&](const char* fault) { throw Error("{}: {}", file_.path().string(), fault); };
  Footer footer{};
  const auto footer_bytes = static_cast<std::int64_t>(sizeof footer);
  if (file_.bytes() < footer_bytes) refuse("is cut short");
  file_.read(file_.bytes() - footer_bytes, std::as_writable_bytes(std::span(&footer, 1)));
  if (std::memcmp(footer.magic, kMagic, sizeof kMagic) != 0) refuse("is cut short, or no file of coded weights");
  const std::int64_t left = file_.bytes() - footer_bytes;
  if (footer.table_bytes > static_cast<std::uint64_t>(std::min(left, kLargestTable))) refuse("has a damaged table");
  std::string text(footer.table_bytes, '\0');
  const std::int64_t data_bytes = left - static_cast<std::int64_t>(text.size());
  file_.read(data_bytes, std::as_writable_bytes(std::span(text)));
  if (XXH3_64bits(text.data(), text.size()) != footer.table_checksum) refuse("has a damaged table");
  try {
    const Json table = Json::parse(text);
    if (table.at("type") != zeepo::name_of(type) || table.at("source") != source) refuse("is of other weights");
    for (const auto& [name, place] : table.at("parameters").items()) {
      Entry entry{place.at("offset"), place.at("bytes"), place.at("checksum")};
      if (entry.offset < 0 || entry.bytes < 0 || entry.offset > data_bytes || entry.bytes > data_bytes - entry.offset)
        refuse("has a damaged table");
      entries_[name] = std::move(entry);
    }
  } catch (const Json::exception&) {
    refuse("has a damaged table");
  }
}

void CodedFile::check_rows() const {
  std::vector<std::byte> bytes;
  for (const auto& [name, entry] : entries_) {
    Hash hash;
    for (std::int64_t at = 0; at < entry.bytes; at += static_cast<std::int64_t>(bytes.size())) {
      bytes.resize(std::min(kBytesAtOnce, static_cast<std::size_t>(entry.bytes - at)));
      file_.read(entry.offset + at, bytes);
      hash.add(bytes);
    }
    if (hash.text() != entry.checksum) throw Error("{}: {} is damaged", file_.path().string(), name);
  }
}

bool CodedFile::read(const UnitParameter& parameter, CodedType type, std::int64_t first,
                     std::span<std::byte> rows) const {
  const auto found = entries_.find(name_of(parameter));
  if (type != type_ || found == entries_.end()) return false;
  const std::int64_t begin = first * static_cast<std::int64_t>(coded_row_bytes(type));
  if (begin + static_cast<std::int64_t>(rows.size()) > found->second.bytes) return false;
  file_.read(found->second.offset + begin, rows);
  return true;
}

}  // namespace zeepo
