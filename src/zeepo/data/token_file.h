// Token files: ids without a header, little endian, 16 bits wide for a vocabulary of up to 65,536 entries, else 32.
//
// Read at any place without holding the file in memory, from any thread. Every id is checked against the vocabulary as
// it is read or written; an Error names the file, the position, the id and the vocabulary's size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "zeepo/base/file.h"
#include "zeepo/data/scratch_file.h"

namespace zeepo {

std::size_t token_bytes(std::int64_t vocab_size);
// Appends ids to `out` as a token file has them. `name` and `position` (of the first id) are for the Error.
void pack_tokens(std::span<const std::int32_t> ids, std::int64_t vocab_size, const std::string& name,
                 std::int64_t position, std::vector<std::byte>& out);

class TokenFile {
 public:
  // Throws Error when the file is empty or ends in the middle of an id.
  TokenFile(const std::filesystem::path& path, std::int64_t vocab_size);
  // The same over packed tokens; `name` is what errors call them.
  TokenFile(ScratchFile tokens, std::string name, std::int64_t vocab_size);

  std::int64_t tokens() const { return tokens_; }
  void read(std::int64_t begin, std::span<std::int32_t> out) const;

 private:
  TokenFile(std::variant<InputFile, ScratchFile> source, std::string name, std::int64_t vocab_size);

  std::variant<InputFile, ScratchFile> source_;
  std::string name_;
  std::int64_t vocab_size_;
  std::int64_t tokens_ = 0;
};

// Appears at its path when committed, complete, or not at all.
class TokenFileWriter {
 public:
  TokenFileWriter(const std::filesystem::path& path, std::int64_t vocab_size) : file_(path), vocab_size_(vocab_size) {}

  std::int64_t tokens() const { return tokens_; }
  void append(std::span<const std::int32_t> ids);
  void commit() { file_.commit(); }

 private:
  OutputFile file_;
  std::int64_t vocab_size_;
  std::int64_t tokens_ = 0;
  std::vector<std::byte> packed_;
};

}  // namespace zeepo
