#include "zeepo/data/documents.h"

#include <algorithm>

#include "zeepo/base/error.h"
#include "zeepo/base/machine.h"
#include "zeepo/base/size.h"
#include "zeepo/data/json_value.h"
#include "zeepo/data/utf8.h"

namespace zeepo {
namespace {

constexpr std::int64_t kReadBytes = 1 << 20;
constexpr std::size_t kLongestLine = std::size_t{1} << 30;

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

void whole_text(const std::filesystem::path& path, const std::function<void(std::string_view)>& document) {
  const std::int64_t bytes = InputFile(path).bytes(), room = free_memory_bytes();
  if (bytes > room)  // the system would end the process, not refuse the memory
    throw Error("{}: {} of text, which is one document, and {} of memory are free; cut it into lines of a .jsonl",
                path.string(), format_size(bytes), format_size(room));
  const std::string text = read_text(path, room);
  const std::size_t valid = valid_utf8_prefix(text);
  if (valid != text.size())
    throw Error("{}: not valid UTF-8 at byte {} of {} (0x{:02x})", path.string(), valid, text.size(),
                static_cast<unsigned char>(text[valid]));
  document(text);
}

}  // namespace

std::string text_of_json_line(std::string_view line, const std::string& name, std::int64_t number) {
  const std::string where = fmt::format("{}:{}", name, number);
  const nlohmann::json document = parse_json(line, where);
  const JsonValue value(document, where);
  for (const char* key : {"messages", "completion"})
    if (!value.find("text") && value.find(key))
      throw Error(
          "{}: has \"{}\" and no \"text\": a token file cannot say which tokens count in the loss; give the .jsonl "
          "itself to train --data",
          where, key);
  return value.at("text").string();
}

bool LineReader::fill() {
  const std::int64_t bytes = std::min(kReadBytes, file_.bytes() - offset_);
  if (bytes == 0) return false;
  buffer_.erase(0, begin_);
  searched_ -= begin_;
  begin_ = 0;
  if (buffer_.size() > kLongestLine)
    throw Error("{}:{}: a line of more than {} bytes", file_.path().string(), number_ + 1, kLongestLine);
  const std::size_t old = buffer_.size();
  buffer_.resize(old + static_cast<std::size_t>(bytes));
  file_.read(offset_, std::as_writable_bytes(std::span(buffer_).subspan(old)));
  offset_ += bytes;
  return true;
}

std::optional<std::string_view> LineReader::next() {
  std::size_t end = std::string::npos;
  while ((end = buffer_.find('\n', searched_)) == std::string::npos) {
    searched_ = buffer_.size();
    if (fill()) continue;
    if (begin_ == buffer_.size()) return std::nullopt;
    end = buffer_.size();
    break;
  }
  const std::string_view line = std::string_view(buffer_).substr(begin_, end - begin_);
  begin_ = searched_ = std::min(end + 1, buffer_.size());
  ++number_;
  return line;
}

bool is_text_file(const std::filesystem::path& path) {
  return path.extension() == ".txt" || path.extension() == ".jsonl";
}

void for_each_document(const std::filesystem::path& path, const std::function<void(std::string_view text)>& document) {
  if (path.extension() == ".txt") return whole_text(path, document);
  if (path.extension() != ".jsonl")
    throw Error("{}: \"{}\" is not known; text is .txt or .jsonl", path.string(), path.extension().string());
  LineReader lines(path);
  while (const auto line = lines.next())
    if (!is_blank(*line)) document(text_of_json_line(*line, path.string(), lines.number()));
}

}  // namespace zeepo
