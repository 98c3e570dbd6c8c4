#include "zeepo/metrics/csv_file.h"

#include <algorithm>
#include <map>

#include "zeepo/base/file.h"
#include "zeepo/metrics/event_numbers.h"
#include "zeepo/metrics/named_error.h"

namespace zeepo {
namespace {

constexpr std::int64_t kMostHeaderBytes = 1 << 16;
// What not every step of a run has.
constexpr const char* kAtTimes[] = {"loss_tokens", "loss_scale", "skipped"};

// Of the file that is appended to; none where it is new or holds no whole line.
std::vector<std::string> columns_in(const std::filesystem::path& path) {
  if (!file_exists(path)) return {};
  const InputFile file(path);
  std::string text(static_cast<std::size_t>(std::min(file.bytes(), kMostHeaderBytes)), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  const std::size_t end = text.find('\n');
  if (text.empty() || (end == std::string::npos && file.bytes() < kMostHeaderBytes)) return {};
  text.resize(end == std::string::npos ? 0 : end);
  if (text.ends_with('\r')) text.pop_back();
  std::vector<std::string> columns;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    columns.push_back(text.substr(begin, comma - begin));
    begin = comma + 1;
  }
  if (std::ranges::find(columns, "step") == columns.end())
    throw Error("its first line has no column \"step\": it is no table of steps to append to; name another file");
  return columns;
}

std::vector<std::string> columns_of(const std::vector<EventNumber>& numbers) {
  std::vector<std::string> columns{"step"};
  for (const EventNumber& number : numbers) columns.push_back(number.name);
  for (const char* column : kAtTimes)
    if (std::ranges::find(columns, column) == columns.end()) columns.emplace_back(column);
  return columns;
}

std::string cell_of(const Event& value) {
  if (value.is_null()) return "nan";
  if (value.is_boolean()) return value.get<bool>() ? "1" : "0";
  return value.dump();
}

}  // namespace

CsvFile::CsvFile(const std::filesystem::path& path, GrowingFile::Mode mode)
    : path_(path),
      columns_(named_by(
          name(), [&] { return mode == GrowingFile::Mode::fresh ? std::vector<std::string>{} : columns_in(path); })),
      file_(named_by(name(), [&] { return GrowingFile(path, mode); })) {}

void CsvFile::write(const Event& event) {
  if (kind_of(event) != "step") return;
  const auto numbers = numbers_of(event, '.');
  std::string rows;
  if (columns_.empty()) {
    columns_ = columns_of(numbers);
    rows = fmt::format("{}\n", fmt::join(columns_, ","));
  }
  std::map<std::string_view, std::string> cells{{"step", fmt::format("{}", step_of(event))}};
  for (const EventNumber& number : numbers) cells[number.name] = cell_of(*number.value);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const auto cell = cells.find(columns_[i]);
    rows += fmt::format("{}{}", i == 0 ? "" : ",", cell == cells.end() ? "" : cell->second);
  }
  file_.write(rows + "\n");
}

}  // namespace zeepo
