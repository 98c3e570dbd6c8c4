// The documents of a text file: a .txt is one, a .jsonl has one a line, in its "text".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "zeepo/base/file.h"

namespace zeepo {

// The text of one line. Throws Error with `name` and the line's number when it is not JSON or "text" is not a string.
std::string text_of_json_line(std::string_view line, const std::string& name, std::int64_t number);

// Lines of a file of any size; the memory of one line at a time.
class LineReader {
 public:
  explicit LineReader(const std::filesystem::path& path) : file_(path) {}

  // The next line without its end, valid until the next call; nothing after the last.
  std::optional<std::string_view> next();
  std::int64_t number() const { return number_; }  // of the last line, from 1

 private:
  bool fill();

  InputFile file_;
  std::int64_t offset_ = 0, number_ = 0;
  std::string buffer_;
  std::size_t begin_ = 0, searched_ = 0;
};

bool is_text_file(const std::filesystem::path& path);
// Calls document(text) for each document in order; blank lines of a .jsonl are none. Throws Error naming the file, and
// the line or the offset, for what is not valid.
void for_each_document(const std::filesystem::path& path, const std::function<void(std::string_view text)>& document);

}  // namespace zeepo
